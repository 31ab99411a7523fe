package wire

import "encoding/json"

// BatchRequest holds up to 1,000 checks that have nothing to do with each other: one may pass where
// another fails, and they are decided in no particular order.
type BatchRequest struct {
	Checks []CheckRequest `json:"checks"`
}

// BatchResponse answers a [BatchRequest], in the order of its checks.
type BatchResponse struct {
	Results []Result `json:"results"`
}

// Result answers one check of a batch as the check alone would have been: with a decision if it
// passed, else with a problem. A denial is a problem with its Decision set. One of the two is nil.
type Result struct {
	Decision *Decision
	Problem  *Problem
}

// MarshalJSON writes the one that is set.
func (r Result) MarshalJSON() ([]byte, error) {
	if r.Problem != nil {
		return json.Marshal(r.Problem)
	}
	return json.Marshal(r.Decision)
}

// UnmarshalJSON reads either: what has a code is a problem.
func (r *Result) UnmarshalJSON(data []byte) error {
	var p Problem
	err := json.Unmarshal(data, &p)
	if err != nil {
		return err
	}
	if p.Code != "" {
		*r = Result{Problem: &p}
		return nil
	}
	*r = Result{Decision: p.Decision}
	return nil
}
