package composite

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"zonehop/selector"
)

// vectors are the evaluation rules as data. They are decoded strictly: a field this file does not
// know is a failure, so nothing in a vector goes unchecked by accident.
type vectors struct {
	Sources []struct {
		ID, Description             string
		Percent                     string // as a ratio
		Min                         int
		Healthy, Unhealthy, Unknown int
		Required                    int
		Want                        string
	}
	Composites []struct {
		ID, Description string
		Sources         []string
		Want            string
	}
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/evaluation.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if len(v.Sources) == 0 || len(v.Composites) == 0 {
		t.Fatalf("%d vectors of sources and %d of composites: want some of both", len(v.Sources), len(v.Composites))
	}
	return v
}

func state(t *testing.T, text string) selector.Health {
	t.Helper()
	for _, h := range []selector.Health{selector.Healthy, selector.Unhealthy, selector.Unknown} {
		if h.String() == text {
			return h
		}
	}
	t.Fatalf("%q is not a state", text)
	return 0
}

func TestSourceVectors(t *testing.T) {
	for _, v := range readVectors(t).Sources {
		p := Policy{Percent: selector.MustRatio(v.Percent), Min: v.Min}
		c := Count{v.Healthy, v.Unhealthy, v.Unknown}
		if got := p.Judge(c); got != state(t, v.Want) {
			t.Errorf("%s (%s): Judge(%+v) = %v, want %s", v.ID, v.Description, c, got, v.Want)
		}
		if got := p.Required(c.Total()); got != v.Required {
			t.Errorf("%s (%s): Required(%d) = %d, want %d", v.ID, v.Description, c.Total(), got, v.Required)
		}
		if missingOf(&p, c) == "" {
			t.Errorf("%s: nothing is said about what is missing", v.ID)
		}
	}
}

func TestCompositeVectors(t *testing.T) {
	for _, v := range readVectors(t).Composites {
		var states []selector.Health
		for _, s := range v.Sources {
			states = append(states, state(t, s))
		}
		if got := Combine(states); got != state(t, v.Want) {
			t.Errorf("%s (%s): Combine(%v) = %v, want %s", v.ID, v.Description, v.Sources, got, v.Want)
		}
	}
}
