// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// classifier decides, for each frame of one interface, whether it belongs to the
// appliance or to the kernel. To the AF_XDP socket of the receive queue go
//
//   (a) IPv4 and IPv6 packets whose destination is a forwarding rule's address,
//       whatever the protocol or port, fragments too;
//   (b) ARP requests and neighbour solicitations whose target is an address that
//       the appliance answers for;
//   (c) frames to the interface's own MAC whose destination lies in a route and is
//       not one of the host's own addresses, nor link-local, multicast, broadcast,
//       loopback or unspecified.
//
// Everything else is the kernel's, also what is cut short or carries more than two
// VLAN tags. Of that, replies to probes are rewritten on the way (probe.h). A frame of a queue without a socket is dropped and counted: handing
// it to the kernel would expose the host's services on a rule's address.
//
// Compile with bpf/build.sh; the object is checked in beside this file.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define MAX_QUEUES 1024
#define MAX_ADDRESSES 65536
#define MAX_ROUTES 65536
#define MAX_TAGS 2

// Flags of an address; keep equal to those in address.go.
#define ADDR_RULE 1   // a forwarding rule's address
#define ADDR_ANSWER 2 // ARP and neighbour discovery are answered for it
#define ADDR_OWN 4    // the host's own

// Addresses are 16 bytes in network order; IPv4 ones are IPv4-mapped (RFC 4291 2.5.5.2).
struct addr {
	union {
		__u8 b[16];
		__be32 w[4];
	};
};

struct route {
	__u32 bits;
	struct addr addr;
};

struct settings {
	__u64 mac;     // the interface's own, first byte in bits 47 to 40
	__u32 probing; // not 0: backends are probed as rules' addresses
	__u32 pad;
};

struct counters {
	__u64 redirected; // handed to a socket
	__u64 no_socket;  // meant for a socket, but the queue has none: dropped
	__u64 passed;     // the kernel's
	__u64 returned;   // probes that came back: dropped
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, struct counters);
} queue_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, struct addr);
	__type(value, __u32);
} addresses SEC(".maps");

// One trie per family: a default route for IPv6 would cover IPv4-mapped addresses.
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ROUTES);
	__type(key, struct route);
	__type(value, __u32);
} routes4 SEC(".maps"), routes6 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct vlan {
	__be16 tci;
	__be16 proto;
};

struct arp4 { // RFC 826, Ethernet and IPv4
	__be16 htype, ptype;
	__u8 hlen, plen;
	__be16 op;
	__u8 sender_mac[6], sender_ip[4], target_mac[6], target_ip[4];
} __attribute__((packed));

struct ip4 { // RFC 791, without options
	__u8 version_ihl, tos;
	__be16 len, id, frag;
	__u8 ttl, protocol;
	__be16 check;
	__u8 src[4], dst[4];
};

struct ip6 { // RFC 8200
	__be32 version_class_flow;
	__be16 payload_len;
	__u8 next, hop_limit;
	struct addr src, dst;
};

struct solicit { // RFC 4861 4.3, without options
	__u8 type, code;
	__be16 check;
	__be32 reserved;
	struct addr target;
};

// What take answers.
#define PASS 0
#define TAKE 1
#define RETURNED 2 // a probe of our own

#define PROTO_ICMPV6 58 // RFC 4443
#define ICMPV6_NEIGHBOR_SOLICIT 135 // RFC 4861 4.3

static __always_inline struct addr mapped(const __u8 ip[4])
{
	struct addr a = {};

	a.b[10] = 0xff;
	a.b[11] = 0xff;
	a.b[12] = ip[0];
	a.b[13] = ip[1];
	a.b[14] = ip[2];
	a.b[15] = ip[3];
	return a;
}

static __always_inline __u32 flags_of(const struct addr *a)
{
	__u32 *flags = bpf_map_lookup_elem(&addresses, a);

	return flags ? *flags : 0;
}

static __always_inline struct settings *own_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&settings, &zero);
}

static __always_inline int probing(void)
{
	struct settings *s = own_settings();

	return s && s->probing;
}

static __always_inline int to_own_mac(const struct ethhdr *eth)
{
	struct settings *s = own_settings();
	const __u8 *m = eth->h_dest;
	__u64 dst = (__u64)m[0] << 40 | (__u64)m[1] << 32 | (__u64)m[2] << 24 |
		    (__u64)m[3] << 16 | (__u64)m[4] << 8 | m[5];

	return s && s->mac != 0 && s->mac == dst;
}

#include "probe.h"

// Destinations that are never forwarded (RFC 1812 5.3, RFC 6890, RFC 4291 2.4).
static __always_inline int local4(const __u8 ip[4])
{
	return ip[0] == 0 || ip[0] == 127 || (ip[0] & 0xf0) == 224 ||
	       (ip[0] == 169 && ip[1] == 254) ||
	       (ip[0] == 255 && ip[1] == 255 && ip[2] == 255 && ip[3] == 255);
}

static __always_inline int local6(const struct addr *a)
{
	__u8 rest = 0;

	if (a->b[0] == 0xff || (a->b[0] == 0xfe && (a->b[1] & 0xc0) == 0x80))
		return 1;
#pragma unroll
	for (int i = 0; i < 15; i++)
		rest |= a->b[i];
	return rest == 0 && a->b[15] <= 1; // :: and ::1
}

static __always_inline int routed(void *trie, const struct addr *dst)
{
	struct route key = {.bits = 128, .addr = *dst};

	return bpf_map_lookup_elem(trie, &key) != 0;
}

static __always_inline int take_arp(void *p, void *end)
{
	struct arp4 *arp = p;
	struct addr target;

	if ((void *)(arp + 1) > end)
		return 0;
	if (arp->htype != bpf_htons(1) || arp->ptype != bpf_htons(ETH_P_IP) ||
	    arp->hlen != 6 || arp->plen != 4 || arp->op != bpf_htons(1))
		return 0;
	target = mapped(arp->target_ip);
	return (flags_of(&target) & ADDR_ANSWER) != 0;
}

static __always_inline int take_ip4(struct ethhdr *eth, void *p, void *end)
{
	struct ip4 *ip = p;
	struct addr dst;
	__u32 flags;

	if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4)
		return 0;
	dst = mapped(ip->dst);
	flags = flags_of(&dst);
	if (flags & ADDR_RULE) {
		struct addr src = mapped(ip->src);

		return probing() && probe_returned(&src, &dst, tcp_of4(ip, end), 0) ? RETURNED : TAKE;
	}
	if (flags & ADDR_OWN && probing())
		probe_reply4(ip, end);
	if (flags & ADDR_OWN || local4(ip->dst) || !to_own_mac(eth))
		return 0;
	return routed(&routes4, &dst);
}

static __always_inline int take_ip6(struct ethhdr *eth, void *p, void *end)
{
	struct ip6 *ip = p;
	struct solicit *ns = (void *)(ip + 1);
	struct addr a;
	__u32 flags;

	if ((void *)ns > end || (ip->version_class_flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
		return 0;
	a = ip->dst;
	flags = flags_of(&a);
	if (flags & ADDR_RULE) {
		struct addr src = ip->src;

		return probing() && probe_returned(&src, &a, tcp_of6(ip, end), 1) ? RETURNED : TAKE;
	}
	if (flags & ADDR_OWN && probing())
		probe_reply6(ip, end);
	// A solicitation carries no extension header in practice, and none in front of
	// it would be a fragment header (RFC 6980).
	if (ip->next == PROTO_ICMPV6 && (void *)(ns + 1) <= end &&
	    ns->type == ICMPV6_NEIGHBOR_SOLICIT && ns->code == 0) {
		struct addr target = ns->target;

		if (flags_of(&target) & ADDR_ANSWER)
			return 1;
	}
	if (flags & ADDR_OWN || local6(&a) || !to_own_mac(eth))
		return 0;
	return routed(&routes6, &a);
}

static __always_inline int take(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	void *p = eth + 1;
	__be16 proto;

	if (p > end)
		return 0;
	proto = eth->h_proto;
#pragma unroll
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan *tag = p;

		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return 0;
		proto = tag->proto;
		p = tag + 1;
	}
	if (proto == bpf_htons(ETH_P_IP))
		return take_ip4(eth, p, end);
	if (proto == bpf_htons(ETH_P_IPV6))
		return take_ip6(eth, p, end);
	if (proto == bpf_htons(ETH_P_ARP))
		return take_arp(p, end);
	return 0;
}

SEC("xdp")
int classifier(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;
	struct counters *c = bpf_map_lookup_elem(&queue_counters, &queue);
	int taken = take(ctx);
	long action;

	if (taken == PASS) {
		if (c)
			c->passed++;
		return XDP_PASS;
	}
	if (taken == RETURNED) {
		if (c)
			c->returned++;
		return XDP_DROP;
	}
	// A look-up of flows that the program forwards itself belongs here.
	action = bpf_redirect_map(&sockets, queue, XDP_DROP);
	if (c) {
		if (action == XDP_REDIRECT)
			c->redirected++;
		else
			c->no_socket++;
	}
	return action;
}

char _license[] SEC("license") = "GPL";
