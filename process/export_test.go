package process

// Faulty counts the letters at which faults of ours are remembered.
func (p *Pool) Faulty() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.faults)
}
