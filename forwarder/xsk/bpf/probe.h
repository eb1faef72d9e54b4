// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Probes of a backend as a forwarding rule's address. The kernel's TCP connects to
// the backend's own address p → backend; on the wire the same packets carry the
// rule's address, under which clients reach the backend:
//
//   kernel ── own:p → backend:port ──► probe_out (tcx egress) ── own:p → rule:port ──► wire
//   kernel ◄─ backend:port → own:p ─── probe_reply (XDP) ◄────── rule:port → own:p ─── wire
//
// The kernel resolves the backend's address and keeps the connection's state.
// User space writes each probe into the map before its socket connects: the local
// port, which no other socket has at the time, says which probe a reply belongs to,
// however many backends are probed as one address at once.

// Local ports are 16 bits, in two families, so that the map cannot overflow.
#define MAX_PROBES 131072

struct probe_key {
	__be16 port; // local
	__u16 ip6;   // 0 or 1
};

struct probe { // keep equal to probeEntry in probes.go
	struct addr backend, rule;
	__u64 cookie; // of the socket
	__u64 until;  // CLOCK_MONOTONIC in nanoseconds: when the entry stops to count
	__be16 port;  // the backend's
	__u16 pad[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_PROBES);
	__type(key, struct probe_key);
	__type(value, struct probe);
} probes SEC(".maps");

struct tcp { // RFC 9293 3.1
	__be16 src, dst;
	__be32 seq, ack;
	__be16 flags, window, check, urgent;
};

#define PROTO_TCP 6
#define SOCK_STREAM 1 // linux/net.h
#define TCX_NEXT -1   // enum tcx_action_base of linux/bpf.h, which older headers lack
#define TCX_DROP 2
#define FRAGMENT 0x3fff // offset and "more fragments" (RFC 791 3.1)

static __always_inline int same(const struct addr *a, const struct addr *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2] && a->w[3] == b->w[3];
}

static __always_inline struct probe *probe_at(__be16 local, __u16 ip6)
{
	struct probe_key key = {.port = local, .ip6 = ip6};
	struct probe *e = bpf_map_lookup_elem(&probes, &key);

	return e && bpf_ktime_get_ns() < e->until ? e : 0;
}

// The TCP header of a whole packet, or 0.
static __always_inline struct tcp *tcp_of4(struct ip4 *ip, void *end)
{
	__u32 len = (ip->version_ihl & 0xf) * 4;
	struct tcp *tcp = (void *)ip + len;

	if (ip->protocol != PROTO_TCP || ip->frag & bpf_htons(FRAGMENT) || len < sizeof(*ip) || (void *)(tcp + 1) > end)
		return 0;
	return tcp;
}

// TCP does not put extension headers into a connection that has none.
static __always_inline struct tcp *tcp_of6(struct ip6 *ip, void *end)
{
	struct tcp *tcp = (void *)(ip + 1);

	if (ip->next != PROTO_TCP || (void *)(tcp + 1) > end)
		return 0;
	return tcp;
}

// A checksum after part of what it covers was replaced (RFC 1624).
static __always_inline __u16 checksum_after(__u16 check, void *from, void *to, __u32 size)
{
	__u32 sum = bpf_csum_diff(from, size, to, size, (__u16)~check);

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

// The kernel gets the reply to a probe as one from the backend's own address.
static __always_inline void probe_reply4(struct ip4 *ip, void *end)
{
	struct tcp *tcp = tcp_of4(ip, end);
	struct addr src = mapped(ip->src);
	struct probe *e;

	if (!tcp || !(e = probe_at(tcp->dst, 0)) || e->port != tcp->src || !same(&e->rule, &src))
		return;
	ip->check = checksum_after(ip->check, &e->rule.b[12], &e->backend.b[12], 4);
	tcp->check = checksum_after(tcp->check, &e->rule.b[12], &e->backend.b[12], 4);
	__builtin_memcpy(ip->src, &e->backend.b[12], 4);
}

static __always_inline void probe_reply6(struct ip6 *ip, void *end)
{
	struct tcp *tcp = tcp_of6(ip, end);
	struct probe *e;

	if (!tcp || !(e = probe_at(tcp->dst, 1)) || e->port != tcp->src || !same(&e->rule, &ip->src))
		return;
	tcp->check = checksum_after(tcp->check, &e->rule, &e->backend, 16);
	ip->src = e->backend;
}

// A backend without the rule's address that forwards packets sends the probe back,
// to whoever answers for the address: that must not be balanced to another backend,
// whose reply would look like one of the backend probed.
static __always_inline int probe_returned(const struct addr *src, const struct addr *dst, struct tcp *tcp, __u16 ip6)
{
	struct probe *e;

	return tcp && flags_of(src) & ADDR_OWN && (e = probe_at(tcp->src, ip6)) &&
	       e->port == tcp->dst && same(&e->rule, dst);
}

// Whether a packet with a probe's local port and destination is one of the probe.
// What the kernel answers for a connection that is over, such as the reset for a
// late reply, comes from no stream socket, and has the host's own source, unlike
// what the host forwards.
static __always_inline int probes_own(struct __sk_buff *skb, struct probe *e, const struct addr *src)
{
	struct bpf_sock *sk = skb->sk;

	if (bpf_get_socket_cookie(skb) == e->cookie)
		return 1;
	if (sk) {
		sk = bpf_sk_fullsock(sk);
		if (sk && sk->type == SOCK_STREAM)
			return 0;
	}
	return (flags_of(src) & ADDR_OWN) != 0;
}

static __always_inline long send_probe4(struct __sk_buff *skb, struct ip4 *ip, __u32 at, void *end)
{
	struct tcp *tcp = tcp_of4(ip, end);
	struct addr src = mapped(ip->src), dst = mapped(ip->dst);
	__u32 check = at + (ip->version_ihl & 0xf) * 4 + __builtin_offsetof(struct tcp, check);
	struct probe *e;
	__be32 from, to;

	if (!tcp || !(e = probe_at(tcp->src, 0)) || e->port != tcp->dst || !same(&e->backend, &dst) || !probes_own(skb, e, &src))
		return 0;
	from = e->backend.w[3];
	to = e->rule.w[3];
	return bpf_l4_csum_replace(skb, check, from, to, BPF_F_PSEUDO_HDR | sizeof(to)) ?:
	       bpf_l3_csum_replace(skb, at + __builtin_offsetof(struct ip4, check), from, to, sizeof(to)) ?:
	       bpf_skb_store_bytes(skb, at + __builtin_offsetof(struct ip4, dst), &to, sizeof(to), 0);
}

static __always_inline long send_probe6(struct __sk_buff *skb, struct ip6 *ip, __u32 at, void *end)
{
	struct tcp *tcp = tcp_of6(ip, end);
	struct addr src = ip->src, to;
	__u32 check = at + sizeof(*ip) + __builtin_offsetof(struct tcp, check);
	struct probe *e;
	__s64 diff;

	if (!tcp || !(e = probe_at(tcp->src, 1)) || e->port != tcp->dst || !same(&e->backend, &ip->dst) || !probes_own(skb, e, &src))
		return 0;
	diff = bpf_csum_diff((void *)&e->backend, 16, (void *)&e->rule, 16, 0);
	to = e->rule;
	return bpf_l4_csum_replace(skb, check, 0, diff, BPF_F_PSEUDO_HDR) ?:
	       bpf_skb_store_bytes(skb, at + __builtin_offsetof(struct ip6, dst), &to, sizeof(to), 0);
}

SEC("tc")
int probe_out(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	__u32 at = sizeof(*eth);
	struct ip4 *ip;
	struct ip6 *ip6;
	__be16 proto;
	long failed = 0;

	if ((void *)(eth + 1) > end)
		return TCX_NEXT;
	proto = eth->h_proto;
#pragma unroll
	for (int i = 0; i < MAX_TAGS; i++) {
		struct vlan *tag = data + at;

		if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > end)
			return TCX_NEXT;
		proto = tag->proto;
		at += sizeof(*tag);
	}
	ip = data + at;
	ip6 = data + at;
	if (proto == bpf_htons(ETH_P_IP) && (void *)(ip + 1) <= end)
		failed = send_probe4(skb, ip, at, end);
	else if (proto == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end)
		failed = send_probe6(skb, ip6, at, end);
	// A probe with the backend's own address would prove the wrong thing; TCP
	// sends it again.
	return failed ? TCX_DROP : TCX_NEXT;
}
