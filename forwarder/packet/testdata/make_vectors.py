#!/usr/bin/env python3
"""Prints vectors.json: frames with the fields and answers expected of them.

Written against the RFCs with nothing but struct, so that the Go code is not
its own witness.  Usage: python3 make_vectors.py > vectors.json
"""
import ipaddress, json, struct

CLIENT, VIP = "020000000001", "020000000002"
C4, V4, C6, V6 = "192.0.2.10", "198.51.100.1", "2001:db8::10", "2001:db8:1::1"
OWN4, OWN6 = "192.0.2.1", "2001:db8::1"

def raw(x):
    return x if isinstance(x, bytes) else bytes.fromhex(x)

def addr(a):
    return ipaddress.ip_address(a).packed

def checksum(b):
    if len(b) % 2:
        b += b"\0"
    s = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    while s >> 16:
        s = (s & 0xffff) + (s >> 16)
    return ~s & 0xffff

def eth(etype, dst=VIP, src=CLIENT, tags=()):
    b = raw(dst) + raw(src)
    for tpid, vid in tags:
        b += struct.pack("!HH", tpid, vid)
    return b + struct.pack("!H", etype)

def ip4(proto, payload, src=C4, dst=V4, ttl=61, tos=0, ident=0x1234, frag=0, options=b"", total=None, ver=4, ihl=None, bad=0):
    ihl = 5 + len(options) // 4 if ihl is None else ihl
    total = 20 + len(options) + len(payload) if total is None else total
    h = struct.pack("!BBHHHBBH", ver << 4 | ihl, tos, total, ident, frag, ttl, proto, 0) + addr(src) + addr(dst) + options
    c = checksum(h) ^ bad
    return h[:10] + struct.pack("!H", c) + h[12:] + payload

def ip6(nxt, payload, src=C6, dst=V6, hop=61, tc=0, flow=0, length=None):
    length = len(payload) if length is None else length
    return struct.pack("!IHBB", 6 << 28 | tc << 20 | flow, length, nxt, hop) + addr(src) + addr(dst) + payload

def pseudo(proto, n, src, dst):
    if ":" in src:
        return addr(src) + addr(dst) + struct.pack("!II", n, proto)
    return addr(src) + addr(dst) + struct.pack("!HH", proto, n)

def udp(sport=4242, dport=53, data=b"hello zonehop", src=C4, dst=V4, zero=False):
    u = struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data
    c = 0 if zero else checksum(pseudo(17, len(u), src, dst) + u) or 0xffff
    return u[:6] + struct.pack("!H", c) + u[8:]

def tcp(flags, sport=4242, dport=443, data=b"", src=C4, dst=V4, options=b"", doff=None):
    doff = 5 + len(options) // 4 if doff is None else doff
    t = struct.pack("!HHIIBBHHH", sport, dport, 1, 2, doff << 4, flags, 65535, 0, 0) + options + data
    return t[:16] + struct.pack("!H", checksum(pseudo(6, len(t), src, dst) + t)) + t[18:]

def icmp4(typ, code, body):
    m = struct.pack("!BBH", typ, code, 0) + body
    return m[:2] + struct.pack("!H", checksum(m)) + m[4:]

def icmp6(typ, code, body, src=C6, dst=V6, bad=0):
    m = struct.pack("!BBH", typ, code, 0) + body
    return m[:2] + struct.pack("!H", checksum(pseudo(58, len(m), src, dst) + m) ^ bad) + m[4:]

def ext(nxt, n=1, fill=0):
    """A hop-by-hop, routing or destination options header of 8n bytes (PadN)."""
    return struct.pack("!BBBB", nxt, n - 1, 1, 8 * n - 4) + bytes([fill]) * (8 * n - 4)

def ah(nxt, n=6):
    return struct.pack("!BBHII", nxt, n - 2, 0, 0x100, 1) + bytes(4 * n - 12)

def frag6(nxt, offset, more, ident=0xdeadbeef):
    return struct.pack("!BBHI", nxt, 0, offset | more, ident)

def pad(b):
    return b + bytes(max(0, 60 - len(b)))

def arp(op, sha=CLIENT, spa=C4, tha="000000000000", tpa=V4, htype=1, ptype=0x0800):
    return struct.pack("!HHBBH", htype, ptype, 6, 4, op) + raw(sha) + addr(spa) + raw(tha) + addr(tpa)

vectors = []

def vec(name, frame, problem="ok", call="", output=b"", **fields):
    v = {"name": name, "frame": frame.hex(), "problem": problem}
    if problem == "ok":
        f = {"kind": "ipv4", "src": C4, "dst": V4, "srcMAC": CLIENT, "ttl": 61, "l3": 14, "l4": 34, "end": len(frame), "proto": 0, "flags": []}
        if fields.get("kind") == "ipv6":
            f.update(src=C6, dst=V6, l4=54)
        f.update(fields)
        v["fields"] = f
    if call:
        v["call"], v["output"] = call, output.hex()
    vectors.append(v)

def ok4(name, proto, payload, ip=None, tags=(), trailer=b"", **f):
    packet = ip4(proto, payload, **(ip or {}))
    frame = eth(0x0800, tags=tags) + packet
    n = 4 * len(tags)
    base = dict(proto=proto, l3=14 + n, l4=34 + n, vlans=len(tags), end=len(frame))
    base.update(f)
    vec(name, frame + trailer, **base)

def ok6(name, nxt, payload, ip=None, tags=(), trailer=b"", **f):
    packet = ip6(nxt, payload, **(ip or {}))
    frame = eth(0x86dd, tags=tags) + packet
    n = 4 * len(tags)
    base = dict(kind="ipv6", proto=nxt, l3=14 + n, l4=54 + n, vlans=len(tags), end=len(frame))
    base.update(f)
    vec(name, frame + trailer, **base)

P = ["hasPorts", "hasTransport"]
UDP = dict(srcPort=4242, dstPort=53, flags=P)

# Transports over plain IPv4.
ok4("udp", 17, udp(), **UDP)
ok4("udp padded to 60 bytes", 17, udp(data=b""), trailer=bytes(18), **UDP)
ok4("udp without checksum", 17, udp(zero=True), **UDP)
ok4("udp-lite", 136, udp(), srcPort=4242, dstPort=53, flags=P)
for bits, names in ((2, ["syn"]), (0x12, ["syn", "ack"]), (0x10, ["ack"]), (0x11, ["fin", "ack"]), (4, ["rst"]), (0x18, ["ack"]), (0xff, ["fin", "syn", "rst", "ack"])):
    ok4("tcp flags %#04x" % bits, 6, tcp(bits), srcPort=4242, dstPort=443, flags=P + names)
ok4("tcp with options", 6, tcp(2, options=bytes.fromhex("020405b4")), srcPort=4242, dstPort=443, flags=P + ["syn"])
ok4("sctp", 132, struct.pack("!HHII", 5000, 6000, 7, 0) + bytes(4), srcPort=5000, dstPort=6000, flags=P)
ok4("gre has no ports", 47, bytes(16), flags=[])
ok4("ip-in-ip has no ports", 4, ip4(17, udp()), flags=[])
ok4("echo request", 1, icmp4(8, 0, b"\0\1\0\2data"), icmpType=8, flags=["hasTransport", "echoRequest"])
ok4("echo reply", 1, icmp4(0, 0, b"\0\1\0\2data"), flags=["hasTransport"])
for t in (3, 4, 5, 11, 12):
    ok4("icmp error type %d" % t, 1, icmp4(t, 1, bytes(4) + ip4(17, udp(src=V4, dst=C4), src=V4, dst=C4)[:28]), icmpType=t, icmpCode=1, flags=["hasTransport", "icmpError"])
ok4("icmpv6 number in ipv4 is no icmp", 58, bytes(8), flags=[])

# Options, fragments, tags.
OPT = bytes.fromhex("0101010194040000")
ok4("udp behind ipv4 options", 17, udp(), ip=dict(options=OPT), l4=42, srcPort=4242, dstPort=53, flags=P + ["ipOptions"])
ok4("tcp behind 40 bytes of options", 6, tcp(2), ip=dict(options=bytes([1]) * 40), l4=74, srcPort=4242, dstPort=443, flags=P + ["ipOptions", "syn"])
ok4("first fragment with ports", 17, udp(data=bytes(16)), ip=dict(frag=0x2000), fragID=0x1234, srcPort=4242, dstPort=53, flags=P + ["fragment"])
ok4("first fragment of tcp, cut in the options", 6, tcp(2, options=bytes(8))[:24], ip=dict(frag=0x2000), fragID=0x1234, srcPort=4242, dstPort=443, flags=["hasPorts", "fragment", "syn"])
ok4("later fragment, middle", 17, bytes(16), ip=dict(frag=0x2002), fragID=0x1234, flags=["fragment", "laterFragment"])
ok4("later fragment, last, odd length", 17, bytes(5), ip=dict(frag=0x00b9), fragID=0x1234, flags=["fragment", "laterFragment"], trailer=bytes(21))
ok4("don't fragment is no fragment", 17, udp(), ip=dict(frag=0x4000), **UDP)
ok4("later fragment of tcp at offset 16", 6, bytes(16), ip=dict(frag=2), fragID=0x1234, flags=["fragment", "laterFragment"])
ok4("802.1q", 17, udp(), tags=[(0x8100, 100)], **UDP)
ok4("qinq", 17, udp(), tags=[(0x88a8, 7), (0x8100, 100)], **UDP)
ok4("two 802.1q tags", 17, udp(), tags=[(0x8100, 7), (0x8100, 100)], **UDP)
ok4("qinq, options and padding", 17, udp(data=b""), tags=[(0x88a8, 7), (0x8100, 100)], ip=dict(options=OPT), l4=50, trailer=bytes(2), srcPort=4242, dstPort=53, flags=P + ["ipOptions"])

# IPv6.
u6 = udp(src=C6, dst=V6)
E = ["extensionHeaders"]
P6 = dict(proto=17, srcPort=4242, dstPort=53, flags=P + E)
ok6("udp6", 17, u6, **UDP)
ok6("udp6 without checksum", 17, udp(zero=True), **UDP)
ok6("tcp6 syn", 6, tcp(2, src=C6, dst=V6), srcPort=4242, dstPort=443, flags=P + ["syn"])
ok6("udp6 in qinq", 17, u6, tags=[(0x88a8, 7), (0x8100, 100)], **UDP)
ok6("udp6 padded", 17, u6, trailer=bytes(9), **UDP)
ok6("echo request6", 58, icmp6(128, 0, b"\0\1\0\2data"), icmpType=128, flags=["hasTransport", "echoRequest"])
for t in (1, 2, 3, 4, 100):
    ok6("icmpv6 error type %d" % t, 58, icmp6(t, 0, bytes(4) + ip6(17, u6, src=V6, dst=C6)), icmpType=t, flags=["hasTransport", "icmpError"])
ok6("mld report is information", 58, icmp6(143, 0, bytes(4)), icmpType=143, flags=["hasTransport"])
ok6("icmp number in ipv6 is no icmp", 1, bytes(8), flags=[])
ok6("no next header", 59, b"", flags=[])
ok6("hop-by-hop", 0, ext(17) + u6, l4=62, **P6)
ok6("destination options of 24 bytes", 60, ext(17, 3) + u6, l4=78, **P6)
ok6("routing", 43, ext(17) + u6, l4=62, **P6)
ok6("authentication header", 51, ah(17) + u6, l4=78, **P6)
ok6("hop-by-hop, routing, destination options, ah, tcp", 0, ext(43) + ext(60, 2) + ext(51) + ah(6) + tcp(0x10, src=C6, dst=V6), l4=54 + 8 + 16 + 8 + 24, proto=6, srcPort=4242, dstPort=443, flags=P + E + ["ack"])
ok6("eight extension headers", 0, ext(60) * 7 + ext(17) + u6, l4=54 + 64, **P6)
ok6("nine extension headers", 0, ext(60) * 8 + ext(17) + u6, l4=54 + 64, proto=60, flags=E)
ok6("esp hides the ports", 50, bytes(24), flags=[])
ok6("esp behind destination options", 60, ext(50) + bytes(24), l4=62, proto=50, flags=E)
ok6("mobility header hides the ports", 135, ext(17) + u6, flags=[])
ok6("first fragment6", 44, frag6(17, 0, 1) + udp(src=C6, dst=V6, data=bytes(16)), l4=62, proto=17, fragID=0xdeadbeef, srcPort=4242, dstPort=53, flags=P + E + ["fragment"])
ok6("first fragment6 with destination options behind", 44, frag6(60, 0, 1) + ext(17) + udp(src=C6, dst=V6, data=bytes(8)), l4=70, proto=17, fragID=0xdeadbeef, srcPort=4242, dstPort=53, flags=P + E + ["fragment"])
ok6("first fragment6 that ends within the chain", 44, frag6(60, 0, 1) + ext(17, 4)[:16], l4=62, proto=60, fragID=0xdeadbeef, flags=E + ["fragment"])
ok6("later fragment6", 44, frag6(17, 1448, 0) + bytes(5), l4=62, proto=17, fragID=0xdeadbeef, flags=E + ["fragment", "laterFragment"])
ok6("atomic fragment", 44, frag6(17, 0, 0) + u6, l4=62, proto=17, srcPort=4242, dstPort=53, flags=P + E + ["atomicFragment"])
ok6("second fragment header hides the ports", 44, frag6(44, 0, 0) + frag6(17, 0, 0) + u6, l4=62, proto=44, flags=E + ["atomicFragment"])

# Malformed frames, grouped by what is wrong.
whole4, whole6 = eth(0x0800) + ip4(17, udp()), eth(0x86dd) + ip6(17, u6)
for n in (0, 13):
    vec("%d bytes" % n, whole4[:n], "truncated")
vec("ends in the ipv4 header", whole4[:33], "truncated")
vec("ends before the total length", whole4[:-1], "truncated")
vec("ends in the ipv4 options", (eth(0x0800) + ip4(17, b"", options=OPT))[:40], "truncated")
vec("ends in the tag", eth(0x0800, tags=[(0x8100, 1)])[:15], "truncated")
vec("ends behind the tag", eth(0x0800, tags=[(0x8100, 1)]), "truncated")
vec("ends in the ipv6 header", whole6[:53], "truncated")
vec("ends before the payload length", whole6[:-1], "truncated")
vec("ends in the arp message", (eth(0x0806) + arp(1))[:41], "truncated")
vec("three tags", eth(0x0800, tags=[(0x88a8, 1), (0x8100, 2), (0x8100, 3)]) + ip4(17, udp()), "too_many_tags")
vec("lldp", pad(eth(0x88cc) + bytes(20)), "not_ip")
vec("802.3 length instead of a type", pad(eth(0x0026) + bytes(40)), "not_ip")
vec("arp for ipv6 addresses", pad(eth(0x0806) + arp(1, ptype=0x86dd)), "bad_arp")
vec("arp for token ring", pad(eth(0x0806) + arp(1, htype=6)), "bad_arp")
vec("ipv6 in an ipv4 frame", eth(0x0800) + ip6(17, u6), "bad_version")
vec("ipv4 in an ipv6 frame", eth(0x86dd) + ip4(17, udp(data=bytes(40))), "bad_version")
vec("ihl 4", eth(0x0800) + ip4(17, udp(), ihl=4), "bad_header_length")
vec("ihl 0", eth(0x0800) + ip4(17, udp(), ihl=0), "bad_header_length")
vec("total length below the header", eth(0x0800) + ip4(17, udp(), total=19), "bad_length")
vec("total length below the options", eth(0x0800) + ip4(17, udp(), options=OPT, total=27), "bad_length")
vec("total length 0", eth(0x0800) + ip4(17, udp(), total=0), "bad_length")
vec("jumbogram", eth(0x86dd) + ip6(0, struct.pack("!BBBBI", 17, 0, 0xc2, 4, 70000) + u6, length=0), "bad_length")
vec("ipv4 header checksum", eth(0x0800) + ip4(17, udp(), bad=1), "bad_checksum")
vec("ipv4 header checksum with options", eth(0x0800) + ip4(17, udp(), options=OPT, bad=0x8000), "bad_checksum")
vec("ipv4-mapped source", eth(0x86dd) + ip6(17, u6, src="::ffff:192.0.2.10"), "bad_address")
vec("ipv4-mapped destination", eth(0x86dd) + ip6(17, u6, dst="::ffff:198.51.100.1"), "bad_address")
vec("extension header past the packet", eth(0x86dd) + ip6(60, ext(17, 5)[:32]), "bad_header_length")
vec("extension header without room", eth(0x86dd) + ip6(60, ext(17)[:7]), "bad_header_length")
vec("ah past the packet", eth(0x86dd) + ip6(51, ah(17, 9)[:24]), "bad_header_length")
vec("fragment of 7 bytes with more to come", eth(0x0800) + ip4(17, bytes(7), frag=0x2002), "bad_fragment")
vec("empty fragment", eth(0x0800) + ip4(17, b"", frag=2), "bad_fragment")
vec("fragment past 65535", eth(0x0800) + ip4(17, bytes(16), frag=0x1fff), "bad_fragment")
vec("fragment6 of 9 bytes with more to come", eth(0x86dd) + ip6(44, frag6(17, 16, 1) + bytes(9)), "bad_fragment")
vec("fragment6 past 65535", eth(0x86dd) + ip6(44, frag6(17, 0xfff8, 0) + bytes(8)), "bad_fragment")
vec("tcp flags in the second fragment", eth(0x0800) + ip4(6, tcp(2)[:8], frag=0x2000), "tiny_fragment")
vec("fragment over the tcp flags", eth(0x0800) + ip4(6, bytes(16), frag=1), "tiny_fragment")
vec("fragment6 over the tcp flags", eth(0x86dd) + ip6(44, frag6(6, 8, 0) + bytes(16)), "tiny_fragment")
vec("udp header cut", eth(0x0800) + ip4(17, udp()[:7]), "short_transport")
vec("tcp header cut", eth(0x0800) + ip4(6, tcp(2)[:19]), "short_transport")
vec("tcp data offset 4", eth(0x0800) + ip4(6, tcp(2, doff=4)), "short_transport")
vec("tcp data offset past the packet", eth(0x0800) + ip4(6, tcp(2, doff=6)), "short_transport")
vec("icmp header cut", eth(0x0800) + ip4(1, icmp4(8, 0, b"")), "short_transport")
vec("sctp header cut", eth(0x0800) + ip4(132, bytes(11)), "short_transport")
vec("tcp6 header cut", eth(0x86dd) + ip6(6, tcp(2)[:19]), "short_transport")
vec("icmpv6 header cut", eth(0x86dd) + ip6(58, icmp6(128, 0, b"\0")), "short_transport")

# ARP and its answers.
ARP = dict(kind="arp", l4=42, end=42, ttl=0)
vec("arp request", pad(eth(0x0806, dst="ff" * 6) + arp(1)), call="arp", output=pad(eth(0x0806, dst=CLIENT, src=VIP) + arp(2, sha=VIP, spa=V4, tha=CLIENT, tpa=C4)), **ARP)
vec("arp request, not padded", eth(0x0806, dst="ff" * 6) + arp(1), call="arp", output=pad(eth(0x0806, dst=CLIENT, src=VIP) + arp(2, sha=VIP, spa=V4, tha=CLIENT, tpa=C4)), **ARP)
T = [(0x88a8, 7), (0x8100, 100)]
vec("arp request in qinq", pad(eth(0x0806, dst="ff" * 6, tags=T) + arp(1)), call="arp", output=pad(eth(0x0806, dst=CLIENT, src=VIP, tags=T) + arp(2, sha=VIP, spa=V4, tha=CLIENT, tpa=C4)), kind="arp", vlans=2, l3=22, l4=50, end=50, ttl=0)
vec("arp probe", pad(eth(0x0806, dst="ff" * 6) + arp(1, spa="0.0.0.0")), call="arp", output=pad(eth(0x0806, dst=CLIENT, src=VIP) + arp(2, sha=VIP, spa=V4, tha=CLIENT, tpa="0.0.0.0")), **dict(ARP, src="0.0.0.0"))
vec("arp reply is not answered", pad(eth(0x0806) + arp(2)), call="arp", **ARP)
vec("arp request from a multicast address", pad(eth(0x0806, dst="ff" * 6) + arp(1, sha="01005e000001")), call="arp", **ARP)

# Neighbour discovery and its answers.
SOL = "ff02::1:ff00:1"
SOLMAC = "3333ff000001"
def ns(src=C6, dst=SOL, target=V6, options=raw("0101" + CLIENT), hop=255, code=0, bad=0):
    return ip6(58, icmp6(135, code, bytes(4) + addr(target) + options, src=src, dst=dst, bad=bad), src=src, dst=dst, hop=hop)
def na(dst, flags, target=V6, tags=()):
    mac = CLIENT if dst == C6 else "333300000001"
    body = struct.pack("!I", flags << 24) + addr(target) + raw("0201" + VIP)
    return eth(0x86dd, dst=mac, src=VIP, tags=tags) + ip6(58, icmp6(136, 0, body, src=target, dst=dst), src=target, dst=dst, hop=255)
def nsvec(name, packet, output=b"", tags=(), **f):
    n = 4 * len(tags)
    base = dict(kind="ipv6", dst=SOL, ttl=255, proto=58, icmpType=135, l3=14 + n, l4=54 + n, vlans=len(tags), flags=["hasTransport", "neighborSolicit"])
    base.update(f)
    vec(name, eth(0x86dd, dst=SOLMAC, tags=tags) + packet, call="neighbor", output=output, **base)
nsvec("neighbour solicitation", ns(), na(C6, 0x60))
nsvec("neighbour solicitation without option", ns(options=b""), na(C6, 0x60))
nsvec("neighbour solicitation with a nonce", ns(options=raw("0e01010203040506") + raw("0101" + CLIENT)), na(C6, 0x60))
nsvec("neighbour solicitation to the address itself", ns(dst=V6), na(C6, 0x60), dst=V6)
nsvec("neighbour solicitation in a tag", ns(), na(C6, 0x60, tags=T[1:]), tags=T[1:])
nsvec("duplicate address probe", ns(src="::", options=b""), na("ff02::1", 0x20), src="::")
nsvec("duplicate address probe with source option", ns(src="::"), src="::")
nsvec("duplicate address probe to the address itself", ns(src="::", dst=V6, options=b""), src="::", dst=V6)
nsvec("duplicate address probe to all nodes", ns(src="::", dst="ff02::1", options=b""), src="::", dst="ff02::1")
nsvec("neighbour solicitation through a router", ns(hop=254), ttl=254)
nsvec("neighbour solicitation with a bad checksum", ns(bad=1))
nsvec("neighbour solicitation with code 1", ns(code=1), icmpCode=1)
nsvec("neighbour solicitation for a multicast target", ns(target="ff02::1"))
nsvec("neighbour solicitation with an empty option", ns(options=raw("0100" + CLIENT)))
nsvec("neighbour solicitation with an option past the end", ns(options=raw("0102" + CLIENT)))
nsvec("neighbour solicitation with 4 bytes of option", ns(options=raw("01010000")))
nsvec("neighbour solicitation from multicast", ns(src="ff02::2"), src="ff02::2")
short = ip6(58, icmp6(135, 0, bytes(4) + addr(V6)[:12], src=C6, dst=SOL), dst=SOL, hop=255)
nsvec("neighbour solicitation of 20 bytes", short)
m = icmp6(135, 0, bytes(4) + addr(V6), src=C6, dst=SOL)
nsvec("neighbour solicitation with a fragment header", ip6(44, frag6(58, 0, 0) + m, dst=SOL, hop=255), l4=62, flags=["hasTransport", "neighborSolicit", "extensionHeaders", "atomicFragment"])

# Echo and its answers.
def echo4(name, packet, tags=(), trailer=b"", output=None, **f):
    n = 4 * len(tags)
    frame = eth(0x0800, tags=tags) + packet
    base = dict(proto=1, icmpType=8, l3=14 + n, l4=34 + n, end=len(frame), vlans=len(tags), flags=["hasTransport", "echoRequest"])
    base.update(f)
    vec(name, frame + trailer, call="echo", output=pad(eth(0x0800, dst=CLIENT, src=VIP, tags=tags) + output) if output else b"", **base)
DATA = b"\x12\x34\0\1" + bytes(range(56))
reply4 = ip4(1, icmp4(0, 0, DATA), src=V4, dst=C4, ttl=64, ident=0, frag=0x4000)
echo4("ping", ip4(1, icmp4(8, 0, DATA)), output=reply4)
echo4("ping in qinq", ip4(1, icmp4(8, 0, DATA)), tags=T, output=reply4)
echo4("ping without data, padded", ip4(1, icmp4(8, 0, b"\0\1\0\2")), trailer=b"\xee" * 18, output=ip4(1, icmp4(0, 0, b"\0\1\0\2"), src=V4, dst=C4, ttl=64, ident=0, frag=0x4000))
echo4("ping with DSCP and congestion mark", ip4(1, icmp4(8, 0, DATA), tos=0xbb), output=ip4(1, icmp4(0, 0, DATA), src=V4, dst=C4, ttl=64, ident=0, frag=0x4000, tos=0xb8))
echo4("ping with options", ip4(1, icmp4(8, 0, b"\0\1\0\2" + b"xyz"), options=OPT), l4=42, flags=["hasTransport", "echoRequest", "ipOptions"], output=ip4(1, icmp4(0, 0, b"\0\1\0\2xyz"), src=V4, dst=C4, ttl=64, ident=0, frag=0x4000))
echo4("ping whose reply checksum is zero", ip4(1, icmp4(8, 0, b"\xff\xff\0\0")), output=ip4(1, icmp4(0, 0, b"\xff\xff\0\0"), src=V4, dst=C4, ttl=64, ident=0, frag=0x4000))
vec("ping to broadcast", eth(0x0800, dst="ff" * 6) + ip4(1, icmp4(8, 0, DATA), dst="255.255.255.255"), call="echo", proto=1, icmpType=8, **{"dst": "255.255.255.255", "flags": ["hasTransport", "echoRequest"]})
vec("ping to the address in a broadcast frame", eth(0x0800, dst="ff" * 6) + ip4(1, icmp4(8, 0, DATA)), call="echo", proto=1, icmpType=8, flags=["hasTransport", "echoRequest"])
vec("ping from multicast", eth(0x0800) + ip4(1, icmp4(8, 0, DATA), src="224.0.0.1"), call="echo", proto=1, icmpType=8, src="224.0.0.1", flags=["hasTransport", "echoRequest"])
vec("fragment of a ping", eth(0x0800) + ip4(1, icmp4(8, 0, DATA[:60] + bytes(4))[:64], frag=0x2000), call="echo", proto=1, icmpType=8, fragID=0x1234, flags=["hasTransport", "echoRequest", "fragment"])
def echo6(name, packet, output=None, **f):
    frame = eth(0x86dd) + packet
    base = dict(kind="ipv6", proto=58, icmpType=128, flags=["hasTransport", "echoRequest"])
    base.update(f)
    vec(name, frame, call="echo", output=pad(eth(0x86dd, dst=CLIENT, src=VIP) + output) if output else b"", **base)
reply6 = ip6(58, icmp6(129, 0, DATA, src=V6, dst=C6), src=V6, dst=C6, hop=64)
echo6("ping6", ip6(58, icmp6(128, 0, DATA)), reply6)
echo6("ping6 with traffic class and flow label", ip6(58, icmp6(128, 0, DATA), tc=0xbb, flow=0x12345), ip6(58, icmp6(129, 0, DATA, src=V6, dst=C6), src=V6, dst=C6, hop=64, tc=0xb8))
echo6("ping6 behind destination options", ip6(60, ext(58) + icmp6(128, 0, DATA)), reply6, l4=62, flags=["hasTransport", "echoRequest", "extensionHeaders"])
echo6("ping6 from nowhere", ip6(58, icmp6(128, 0, DATA, src="::"), src="::"), src="::")

# Packets whose TTL ran out.
def err4(packet, tags=(), typ=11, code=0, word=0):
    body = struct.pack("!I", word) + packet[:548]
    return pad(eth(0x0800, dst=CLIENT, src=VIP, tags=tags) + ip4(1, icmp4(typ, code, body), src=OWN4, dst=C4, ttl=64, tos=0xc0, ident=0, frag=0x4000))
def err6(packet, typ=3, word=0):
    body = struct.pack("!I", word) + packet[:1232]
    return eth(0x86dd, dst=CLIENT, src=VIP) + ip6(58, icmp6(typ, 0, body, src=OWN6, dst=C6), src=OWN6, dst=C6, hop=64, tc=0xc0)
def exp4(name, packet, answered=True, tags=(), trailer=b"", call="timeExceeded", err=err4, **f):
    n = 4 * len(tags)
    frame = eth(0x0800, tags=tags) + packet
    base = dict(proto=17, ttl=1, l3=14 + n, l4=34 + n, vlans=len(tags), end=len(frame), flags=P, srcPort=4242, dstPort=53)
    base.update(f)
    base = {k: v for k, v in base.items() if v is not None}
    vec(name, frame + trailer, call=call, output=err(packet, tags) if answered else b"", **base)
one = dict(ttl=1)
exp4("ttl 1", ip4(17, udp(), **one))
exp4("ttl 1, padding is not quoted", ip4(17, udp(data=b""), **one), trailer=b"\xee" * 18)
exp4("ttl 1 of 1500 bytes", ip4(17, udp(data=bytes(1472)), **one))
exp4("ttl 1 in qinq", ip4(17, udp(), **one), tags=T)
exp4("ttl 0", ip4(17, udp(), ttl=0), ttl=0)
exp4("ttl 1 of a first fragment", ip4(17, udp(data=bytes(16)), frag=0x2000, **one), flags=P + ["fragment"], fragID=0x1234)
exp4("ttl 1 of a ping", ip4(1, icmp4(8, 0, DATA), **one), proto=1, icmpType=8, flags=["hasTransport", "echoRequest"], srcPort=None, dstPort=None)
exp4("ttl 1 of a later fragment", ip4(17, bytes(16), frag=2, **one), False, flags=["fragment", "laterFragment"], fragID=0x1234, srcPort=None, dstPort=None)
exp4("ttl 1 of an icmp error", ip4(1, icmp4(3, 3, bytes(4) + ip4(17, udp())), **one), False, proto=1, icmpType=3, icmpCode=3, flags=["hasTransport", "icmpError"], srcPort=None, dstPort=None)
for a in ("0.0.0.0", "127.0.0.1", "224.0.0.5", "255.255.255.255", "240.0.0.1"):
    exp4("ttl 1 from " + a, ip4(17, udp(), src=a, **one), False, src=a)
for a in ("224.0.0.5", "255.255.255.255"):
    vec("ttl 1 to " + a, eth(0x0800) + ip4(17, udp(), dst=a, **one), call="timeExceeded", proto=17, srcPort=4242, dstPort=53, flags=P, **{"ttl": 1, "dst": a})
vec("ttl 1 in a broadcast frame", eth(0x0800, dst="ff" * 6) + ip4(17, udp(), **one), call="timeExceeded", proto=17, ttl=1, srcPort=4242, dstPort=53, flags=P)
def exp6(name, packet, answered=True, call="timeExceeded", err=err6, **f):
    frame = eth(0x86dd) + packet
    base = dict(kind="ipv6", proto=17, ttl=1, flags=P, srcPort=4242, dstPort=53)
    base.update(f)
    base = {k: v for k, v in base.items() if v is not None}
    vec(name, frame, call=call, output=err(packet) if answered else b"", **base)
exp6("hop limit 1", ip6(17, u6, hop=1))
exp6("hop limit 1 of 1500 bytes", ip6(17, udp(data=bytes(1452), src=C6, dst=V6), hop=1))
exp6("hop limit 1 behind destination options", ip6(60, ext(17) + u6, hop=1), l4=62, flags=P + E)
exp6("hop limit 1 of an icmpv6 error", ip6(58, icmp6(1, 4, bytes(4) + ip6(17, u6)), hop=1), False, proto=58, icmpType=1, icmpCode=4, flags=["hasTransport", "icmpError"], srcPort=None, dstPort=None)
exp6("hop limit 1 of a redirect", ip6(58, icmp6(137, 0, bytes(36)), hop=1), False, proto=58, icmpType=137, flags=["hasTransport"], srcPort=None, dstPort=None)
exp6("hop limit 1 behind nine extension headers", ip6(0, ext(60) * 8 + ext(58) + icmp6(1, 0, bytes(4)), hop=1), False, proto=60, l4=54 + 64, flags=E, srcPort=None, dstPort=None)
exp6("hop limit 1 of a later fragment", ip6(44, frag6(17, 16, 0) + bytes(8), hop=1), False, l4=62, flags=E + ["fragment", "laterFragment"], fragID=0xdeadbeef, srcPort=None, dstPort=None)
exp6("hop limit 1 from nowhere", ip6(17, u6, src="::", hop=1), False, src="::")
vec("hop limit 1 to multicast", eth(0x86dd) + ip6(17, u6, dst="ff0e::1", hop=1), call="timeExceeded", kind="ipv6", proto=17, srcPort=4242, dstPort=53, flags=P, **{"ttl": 1, "dst": "ff0e::1"})

# Packets that the next link, which takes 1400 bytes, does not.
def big4(name, packet, answered=True, **f):
    exp4(name, packet, answered, call="tooBig", err=lambda p, t: err4(p, t, 3, 4, 1400), **dict(dict(ttl=61), **f))
def big6(name, packet, answered=True, **f):
    exp6(name, packet, answered, call="tooBig", err=lambda p: err6(p, 2, 1400), **dict(dict(ttl=61), **f))
DATA4, DATA6 = udp(data=bytes(1472)), udp(data=bytes(1452), src=C6, dst=V6)
NOPORTS = dict(srcPort=None, dstPort=None)
big4("too big, don't fragment", ip4(17, DATA4, frag=0x4000))
big4("too big, may be fragmented", ip4(17, DATA4))
big4("too big in qinq", ip4(17, DATA4, frag=0x4000), tags=T)
big4("too big behind options", ip4(17, udp(data=bytes(1440)), options=OPT, frag=0x4000), l4=42, flags=P + ["ipOptions"])
big4("too big, padding is not quoted", ip4(17, udp(data=bytes(500)), frag=0x4000), trailer=b"\xee" * 40)
big4("too big, a tcp segment", ip4(6, tcp(0x10, data=bytes(1460)), frag=0x4000), proto=6, dstPort=443, flags=P + ["ack"])
big4("too big, a first fragment", ip4(17, DATA4, frag=0x2000), flags=P + ["fragment"], fragID=0x1234)
big4("too big, a later fragment", ip4(17, DATA4, frag=0x2002), False, flags=["fragment", "laterFragment"], fragID=0x1234, **NOPORTS)
big4("too big, a ping", ip4(1, icmp4(8, 0, b"\0\1\0\2" + bytes(1400))), proto=1, icmpType=8, flags=["hasTransport", "echoRequest"], **NOPORTS)
big4("too big, an icmp error", ip4(1, icmp4(3, 4, bytes(4) + ip4(17, DATA4)[:1400])), False, proto=1, icmpType=3, icmpCode=4, flags=["hasTransport", "icmpError"], **NOPORTS)
big4("too big from loopback", ip4(17, udp(data=bytes(1472), src="127.0.0.1"), src="127.0.0.1"), False, src="127.0.0.1")
vec("too big in a broadcast frame", eth(0x0800, dst="ff" * 6) + ip4(17, DATA4), call="tooBig", proto=17, srcPort=4242, dstPort=53, flags=P)
big6("too big, ipv6", ip6(17, DATA6))
big6("too big, ipv6 behind destination options", ip6(60, ext(17) + udp(data=bytes(1440), src=C6, dst=V6)), l4=62, flags=P + E)
big6("too big, ipv6 first fragment", ip6(44, frag6(17, 0, 1) + udp(data=bytes(1440), src=C6, dst=V6)), l4=62, flags=P + E + ["fragment"], fragID=0xdeadbeef)
big6("too big, ipv6 later fragment", ip6(44, frag6(17, 1448, 0) + bytes(1448)), False, l4=62, flags=E + ["fragment", "laterFragment"], fragID=0xdeadbeef, **NOPORTS)
big6("too big, an icmpv6 error", ip6(58, icmp6(2, 0, bytes(4) + ip6(17, u6))), False, proto=58, icmpType=2, flags=["hasTransport", "icmpError"], **NOPORTS)
big6("too big, a redirect", ip6(58, icmp6(137, 0, bytes(1400))), False, proto=58, icmpType=137, flags=["hasTransport"], **NOPORTS)
big6("too big from nowhere", ip6(17, udp(data=bytes(1452), src="::"), src="::"), False, src="::")

print('{"source": "make_vectors.py, after RFC 768, 791, 792, 793, 826, 1191, 1858, 3128, 4302, 4443, 4861, 5227, 8200", "vectors": [')
print(",\n".join(json.dumps(v) for v in vectors))
print("]}")
