package lock

import (
	"encoding/json"
	"time"
)

// In JSON, durations are seconds, with a fraction; times are RFC 3339, in UTC.

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// MarshalJSON implements json.Marshaler: remaining_seconds stands for Remaining.
func (i Inspection) MarshalJSON() ([]byte, error) {
	type fields Inspection
	return json.Marshal(struct {
		fields
		Seconds float64 `json:"remaining_seconds"`
	}{fields(i), i.Remaining.Seconds()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *Inspection) UnmarshalJSON(data []byte) error {
	type fields Inspection
	in := struct {
		*fields
		Seconds float64 `json:"remaining_seconds"`
	}{fields: (*fields)(i)}
	err := json.Unmarshal(data, &in)
	i.Remaining = seconds(in.Seconds)
	return err
}

// MarshalJSON implements json.Marshaler, as for an [Inspection].
func (h Holder) MarshalJSON() ([]byte, error) {
	type fields Holder
	return json.Marshal(struct {
		fields
		Seconds float64 `json:"remaining_seconds"`
	}{fields(h), h.Remaining.Seconds()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Holder) UnmarshalJSON(data []byte) error {
	type fields Holder
	in := struct {
		*fields
		Seconds float64 `json:"remaining_seconds"`
	}{fields: (*fields)(h)}
	err := json.Unmarshal(data, &in)
	h.Remaining = seconds(in.Seconds)
	return err
}
