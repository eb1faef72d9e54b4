package probe

import (
	"strconv"
	"strings"
)

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
	if err != nil || n > 1 || strings.Trim(text, "0123456789.eE+-") != "" || strings.ContainsAny(text[:1], "eE+-") {
		return Weight{State: WeightInvalid}
	}
	return Weight{State: WeightValid, Value: float32(v)}
}
