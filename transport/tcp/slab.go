package tcp

import (
	"context"
	"fmt"

	"pushpull/transport"
)

// stageBytes is the memory that is taken for data before any of it has arrived.
const stageBytes = 1 << 20

// reuse makes sure of room for total elements in memory that was used before,
// by the session's last call at best. It reports whether there is any.
func (s *session) reuse(total int) bool {
	if s.floats == nil || cap(*s.floats) < total {
		s.rest()
		s.floats = s.listener.network.floats.Reuse(total)
	}
	if s.floats != nil {
		*s.floats = (*s.floats)[:total]
	}
	return s.floats != nil
}

// receive reads the data of the parts, total elements, into memory that was used
// before, or else such that grows as data arrives.
func (s *session) receive(total int) error {
	floats := &s.listener.network.floats
	if !s.reuse(total) {
		s.floats = floats.Get(min(total, stageBytes/4))
	}
	at := 0 // in floats
	for i, n := range s.list.lengths {
		for end := at + n; at < end; {
			if at == len(*s.floats) {
				larger := floats.Get(min(total, 4*at))
				copy(*larger, *s.floats)
				s.rest()
				s.floats = larger
			}
			hi := min(end, len(*s.floats))
			if err := s.link.readData(s.list.parts[i].Encoding, (*s.floats)[at:hi]); err != nil {
				return err
			}
			at = hi
		}
	}
	s.list.share(*s.floats)
	return nil
}

// room gives the parts, total elements, memory for a pull to fill. Before it
// takes more than was used before or a stage, it makes sure that the service
// holds them.
func (s *session) room(ctx context.Context, minStep int64, total int) error {
	if !s.reuse(total) {
		if total > stageBytes/4 {
			if err := survey(ctx, s.listener.service, minStep, &s.list); err != nil {
				return err
			}
		}
		s.floats = s.listener.network.floats.Get(total)
	}
	s.list.share(*s.floats)
	return nil
}

// share gives each part its piece of data.
func (l *list) share(data []float32) {
	for i, n := range l.lengths {
		l.parts[i].Data, data = data[:n:n], data[n:]
	}
}

// survey compares the parts of l with what s holds, once it holds anything.
func survey(ctx context.Context, s transport.Service, minStep int64, l *list) error {
	d, err := s.Describe(ctx)
	if err == nil && len(d.Extents) == 0 {
		if _, err = s.Pull(ctx, minStep, nil); err == nil {
			d, err = s.Describe(ctx)
		}
	}
	if err != nil {
		return err
	}
	return fit(d.Extents, l)
}

// fit compares the parts of l with extents.
func fit(extents []transport.Extent, l *list) error {
	type name struct {
		variable string
		offset   int
	}
	held, left := make(map[name]transport.Extent, len(extents)), 0
	for _, e := range extents {
		held[name{e.Variable, e.Offset}] = e
		left += e.Length
	}
	for i, n := range l.lengths {
		p := &l.parts[i]
		e, ok := held[name{p.Variable, p.Offset}]
		if !ok {
			return fmt.Errorf("%q[%d:]: %w", p.Variable, p.Offset, transport.ErrUnknownPart)
		}
		want := e.Length
		if p.Rows != nil {
			want = len(p.Rows) * e.Width
			if k := len(p.Rows); k > 0 && (int64(p.Rows[k-1])+1)*int64(e.Width) > int64(e.Length) {
				return fmt.Errorf("%q[%d:]: row %d of a run of %d elements in rows of %d: %w",
					p.Variable, p.Offset, p.Rows[k-1], e.Length, e.Width, transport.ErrLength)
			}
		}
		if n != want {
			return fmt.Errorf("%q[%d:]: %d elements, want the shard's %d: %w", p.Variable, p.Offset, n, want, transport.ErrLength)
		}
		if left -= n; left < 0 {
			return fmt.Errorf("the parts up to %q[%d:] are more than the shard holds: %w", p.Variable, p.Offset, transport.ErrTooLarge)
		}
	}
	return nil
}
