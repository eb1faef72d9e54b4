package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// grpcChecker calls Check of the gRPC health checking protocol
// (grpc.health.v1.Health): one unary call, two messages of one field each, for
// which a gRPC library would be the largest dependency of the program.
type grpcChecker struct {
	scheme string
	body   []byte
}

// Field numbers and values of grpc/health/v1/health.proto.
const (
	healthService = 1 // HealthCheckRequest.service
	healthStatus  = 1 // HealthCheckResponse.status
	serving       = 1 // ServingStatus.SERVING

	grpcPrefixLen   = 5    // compressed flag and length of a message
	maxGRPCResponse = 1024 // a health response has a handful of bytes
)

func newGRPCChecker(c *Check) *grpcChecker {
	var message []byte
	if c.GRPCServiceName != "" {
		message = protowire.AppendTag(message, healthService, protowire.BytesType)
		message = protowire.AppendString(message, c.GRPCServiceName)
	}
	g := &grpcChecker{scheme: "http", body: make([]byte, grpcPrefixLen, grpcPrefixLen+len(message))}
	if c.Type == GRPCWithTLS {
		g.scheme = "https"
	}
	binary.BigEndian.PutUint32(g.body[1:], uint32(len(message)))
	g.body = append(g.body, message...)
	return g
}

func (g *grpcChecker) Probe(conn net.Conn, addr netip.AddrPort) Result {
	request := h2Request([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: g.scheme},
		{Name: ":authority", Value: addr.String()},
		{Name: ":path", Value: "/grpc.health.v1.Health/Check"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
		{Name: "user-agent", Value: userAgentText},
	}, g.body)
	if _, err := conn.Write(request); err != nil {
		return failed("send request", err)
	}
	return g.read(newH2Exchange(conn))
}

// read takes the whole response: the RPC's own status comes last.
func (g *grpcChecker) read(x *h2Exchange) Result {
	head, err := x.header()
	if err != nil {
		return failed("read response header", err)
	}
	if status := head.value(":status"); status != "200" {
		return Result{Text: "status " + quoteUnlessNumber(status)}
	}
	var body []byte
	last := head
	for !last.end {
		if last, err = x.next(); err != nil {
			return failed("read response", err)
		}
		if body = append(body, last.data...); len(body) > maxGRPCResponse {
			return Result{Text: fmt.Sprintf("response is longer than %d bytes", maxGRPCResponse)}
		}
	}
	switch code := last.value("grpc-status"); code {
	case "0":
	case "":
		return Result{Text: "rpc ended without a status"}
	default:
		return Result{Text: "rpc status " + quoteUnlessNumber(code) + " " + quote(last.value("grpc-message"))}
	}
	status, err := servingStatus(body)
	if err != nil {
		return Result{Text: "read health response: " + err.Error()}
	}
	if status != serving {
		return Result{Text: "health status " + statusName(status)}
	}
	return Result{OK: true, Text: "SERVING"}
}

// servingStatus decodes the one message of the response.
func servingStatus(b []byte) (uint64, error) {
	if len(b) < grpcPrefixLen || b[0] != 0 || uint64(binary.BigEndian.Uint32(b[1:])) != uint64(len(b)-grpcPrefixLen) {
		return 0, errors.New("not one uncompressed message")
	}
	var status uint64
	for b = b[grpcPrefixLen:]; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if num == healthStatus && typ == protowire.VarintType {
			status, n = protowire.ConsumeVarint(b)
		} else {
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return status, nil
}

func statusName(s uint64) string {
	names := []string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}
	if s < uint64(len(names)) {
		return names[s]
	}
	return strconv.FormatUint(s, 10)
}
