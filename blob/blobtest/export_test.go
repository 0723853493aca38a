package blobtest

// Forget has the next Start be the first.
func (s *Server) Forget() { s.running = nil }
