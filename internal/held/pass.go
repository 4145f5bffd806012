package held

// passOn gives a session whose only hold is being released to a waiter of this
// process. The gate is ours.
func (r *Registry) passOn(h *Hold) bool {
	return r.cfg.PassOn != nil && r.cfg.PassOn(h)
}
