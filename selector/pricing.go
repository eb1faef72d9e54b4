package selector

import (
	"math"
	"math/bits"
)

// Parameters of the construction; see pricing.
const (
	arrivalsPerSlot = 7  // on average; the part of slots without any is e^-7
	maxPasses       = 10 // 6 or 7 are usual at a hundred candidates
	unitPrice       = 1 << 20
	shareTolerance  = 110 // shares are accepted within 1/110 of fair
	slotTolerance   = 2   // or within this many slots, where that is more
)

// bid is the two earliest claims on a slot by different candidates, the first in the low half. A
// claim is (index + 1) << 16 | time, where time runs from 1 to 65535; 0 is none.
type bid uint64

type bids [slots]bid

// pricing builds selection tables by priced rendezvous. Each candidate claims pseudo-random slots
// one after the other, at a rate proportional to its weight, and a slot goes to its earliest claim.
// That alone is rendezvous hashing (Thaler and Ravishankar, 1998): removing a candidate moves
// nothing but its own slots, yet shares differ by several percent. So every candidate gets a price
// by which the times of its claims are multiplied, and prices are moved until each share is within
// tolerance of fair, like the dual prices of an assignment problem. A share is only pushed to the
// edge of its tolerance, never to the middle: the fewer slots depend on prices, the fewer move when
// another candidate leaves and the prices settle a little differently.
//
// Removing one of 100 equal candidates moves 0.23 % of the survivors' slots (0.27 % at worst), with
// shares of 0.991 to 1.009 of fair. The roads not taken are measured beside it by
// TestConstructions: Maglev moves 0.57 % (0.64 %) with shares of 0.998 to 1.000, and rendezvous
// with a cap on shares moves 0.31 % with shares of 0.983 to 1.038. Maglev's turns depend on who else
// is there; a price hardly does. Building takes about as long as Maglev's.
//
// Arithmetic is on integers, so that every platform builds the same table. The buffers are reused: a
// pricing is not safe for concurrent use.
type pricing struct {
	cs        []candidate
	total     uint64 // of weights
	lightest  uint64
	bids      bids
	contested []uint32 // slots whose winner depends on prices
	fixed     []uint32 // slots each candidate has without contest
	share     []uint32
	low, high []uint32 // accepted shares
	price     []uint64
}

// build fills a new table. It takes time in proportion to the slots, hardly to the candidates.
func (p *pricing) build(cs []candidate) *table {
	t := new(table)
	if len(cs) == 1 {
		return t
	}
	p.cs, p.total, p.lightest = cs, 0, math.MaxUint64
	for i := range cs {
		p.total += uint64(cs[i].weight)
		p.lightest = min(p.lightest, uint64(cs[i].weight))
	}
	p.bound()
	p.claim()
	p.settle(t)
	p.balance()
	p.assign(t)
	p.cs = nil
	return t
}

// bound sets the shares that are accepted.
func (p *pricing) bound() {
	p.low, p.high = make([]uint32, len(p.cs)), make([]uint32, len(p.cs))
	for i, c := range p.cs {
		fair := slots * uint64(c.weight) * 256 / p.total // in 1/256
		slack := max(fair/shareTolerance, slotTolerance*256)
		p.low[i] = uint32((max(fair, slack) - slack + 255) / 256)
		p.high[i] = uint32((fair + slack) / 256)
	}
}

// claim lets the candidates claim slots in order of time, in rounds in which each claims once on
// average. Later claims than the second are of no use and not kept.
func (p *pricing) claim() {
	n := uint64(len(p.cs))
	rounds := arrivalsPerSlot*slots/n + 1
	tick := uint64(65534<<16) / rounds // time of one round, in 1/65536
	streams := make([]stream, n)
	even := true
	for i, c := range p.cs {
		// The phase spreads the claims of light candidates over the rounds.
		phase, _ := bits.Mul64(c.seed[0]^c.seed[1], p.total)
		streams[i] = stream{c.seed[0], c.seed[1] | 1, phase}
		even = even && c.weight == p.cs[0].weight
	}
	clear(p.bids[:])
	for r := range rounds {
		start := r*tick + 1<<16
		if even {
			claimOnce(&p.bids, streams, start, tick)
			continue
		}
		for i := range streams {
			credit := streams[i].credit + uint64(p.cs[i].weight)*n
			for ; credit >= p.total; credit -= p.total {
				slot, time := drawn(streams[i].next(), start, tick)
				p.bids[slot] = p.bids[slot].with(bid(i+1)<<16 | time)
			}
			streams[i].credit = credit
		}
	}
}

// stream is the sequence of slots one candidate claims.
type stream struct{ state, step, credit uint64 }

// next is a linear congruential step (Knuth, MMIX); only the upper half of the result is used.
func (s *stream) next() uint64 {
	s.state = s.state*6364136223846793005 + s.step
	return s.state
}

// claimOnce enters one claim of every candidate: the usual case, at half the cost of the general one.
func claimOnce(bids *bids, streams []stream, start, tick uint64) {
	for i := range streams {
		slot, time := drawn(streams[i].next(), start, tick)
		bids[slot] = bids[slot].with(bid(i+1)<<16 | time)
	}
}

// drawn is the slot and the time that a draw stands for.
func drawn(x, start, tick uint64) (slot uint64, time bid) {
	return x >> 32 * slots >> 32, bid(start+x>>16&0xffff*tick>>16) >> 16
}

// with adds a claim, unless there are two or the first is by the same candidate. It is written for
// conditional moves: which case it is cannot be predicted.
func (b bid) with(claim bid) bid {
	next := b | claim<<32
	if b == 0 {
		next = claim
	}
	if b>>32 != 0 {
		next = b
	}
	if uint32(b)>>16 == uint32(claim)>>16 {
		next = b
	}
	return next
}

// settle gives out the slots that no price can move, and lists the others. Prices follow the spread
// of shares, whose standard deviation is the root of the fair share: claims further apart than
// twelve times that are out of reach.
func (p *pricing) settle(t *table) {
	fair := max(1, slots*p.lightest/p.total)
	reach := min(1024, 256+256*12/uint64(math.Sqrt(float64(fair)))) // in 1/256
	p.fixed = make([]uint32, len(p.cs))
	if p.contested == nil {
		p.contested = make([]uint32, slots)
	}
	contested, n := p.contested[:slots], 0
	for s, b := range &p.bids {
		first, second := uint64(b&0xffff), uint64(b>>32&0xffff)
		if b>>32 == 0 {
			first, second = 0, 1
		}
		if b == 0 {
			b = bid(p.unclaimed(uint64(s))+1) << 16
		}
		// Without a branch: most slots are as likely to be contested as not.
		contested[n] = uint32(s)
		winner, alone := b>>16&0xffff-1, uint32(1)
		if second*256 <= first*reach {
			alone = 0
		}
		n += int(1 - alone)
		p.fixed[winner] += alone
		t[s] = uint16(winner)
	}
	p.contested = contested[:n]
}

// unclaimed is plain rendezvous for the few slots without a claim. Weights enter only roughly;
// prices make up for it elsewhere.
func (p *pricing) unclaimed(s uint64) int {
	s *= 0x9e3779b97f4a7c15
	winner, best := 0, uint64(0)
	for i := range p.cs {
		c := &p.cs[i]
		if score := (s ^ c.seed[0]) * (c.seed[1] | 1) >> 32 * uint64(c.weight); score > best {
			winner, best = i, score
		}
	}
	return winner
}

// balance moves the prices until every share is accepted, or for as many passes as are worth it.
func (p *pricing) balance() {
	p.share = make([]uint32, len(p.cs))
	p.price = make([]uint64, len(p.cs))
	for i := range p.price {
		p.price[i] = unitPrice
	}
	p.count()
	for range maxPasses {
		done := true
		for i, share := range p.share {
			if bound := min(max(share, p.low[i]), p.high[i]); bound != share {
				done = false
				price := p.price[i] * uint64(max(share, 1)) / uint64(max(bound, 1))
				p.price[i] = min(max(price, unitPrice/8), unitPrice*8)
			}
		}
		if done {
			return
		}
		p.count()
	}
}

// count finds the shares that the prices lead to.
func (p *pricing) count() {
	copy(p.share, p.fixed)
	share, price, bids := p.share, p.price, &p.bids
	for _, s := range p.contested {
		winner, _ := bids[s].ranked(price)
		share[winner]++
	}
}

// ranked is the two candidates of a contested slot, the one with the lower priced time first; the
// first claim wins a tie.
func (b bid) ranked(price []uint64) (winner, loser uint32) {
	winner, loser = uint32(b>>16&0xffff)-1, uint32(b>>48)-1
	if uint64(b>>32&0xffff)*price[loser] < uint64(b&0xffff)*price[winner] {
		winner, loser = loser, winner
	}
	return winner, loser
}

// assign gives out the contested slots. Where the passes did not suffice it moves single slots away
// from shares that are too high, or to shares that are too low.
func (p *pricing) assign(t *table) {
	for _, s := range p.contested {
		winner, loser := p.bids[s].ranked(p.price)
		if p.share[winner] > p.high[winner] && p.share[loser] < p.high[loser] ||
			p.share[loser] < p.low[loser] && p.share[winner] > p.low[winner] {
			p.share[winner]--
			p.share[loser]++
			winner = loser
		}
		t[s] = uint16(winner)
	}
}
