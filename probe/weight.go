package probe

import "strconv"

// weightHeader is the response field in which a backend reports its weight.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// WeightState says what a backend reported about its weight.
type WeightState uint8

// What a probe can learn about a weight.
const (
	WeightNone    WeightState = iota // not asked for, or nothing received yet
	WeightValid                      // Weight.Value holds it
	WeightMissing                    // the response had no weight field
	WeightInvalid                    // the field was not one non-negative decimal number
)

// Weight is the weight a backend reported with its last answer.
type Weight struct {
	State WeightState
	Value float32 // ≥ 0, finite
}

// parseWeight reads the weight field, which occurred n times.
func parseWeight(text string, n int) Weight {
	if n == 0 {
		return Weight{State: WeightMissing}
	}
	v, err := strconv.ParseFloat(text, 32)
	if err != nil || n > 1 || text == "" || (text[0] < '0' || text[0] > '9') && text[0] != '.' || v < 0 {
		return Weight{State: WeightInvalid}
	}
	return Weight{State: WeightValid, Value: float32(v)}
}
