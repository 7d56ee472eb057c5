package transport

import (
	"fmt"
	"unicode/utf8"
)

// Check tells whether every part is well formed, whatever shard it is meant
// for. Transports refuse others before they travel, and again where they
// arrive, so that a [Service] behind one need not look.
func Check(parts []Part) error {
	for i := range parts {
		if err := parts[i].Check(len(parts[i].Data)); err != nil {
			return err
		}
	}
	return nil
}

// Check tells whether p would be well formed with n elements of data. It
// returns ErrLength for rows that do not match the data, ErrInvalid for
// anything else.
func (p *Part) Check(n int) error {
	if err := p.check(n); err != nil {
		return fmt.Errorf("%q[%d:]: %w", p.Variable, p.Offset, err)
	}
	return nil
}

func (p *Part) check(n int) error {
	switch {
	case !utf8.ValidString(p.Variable):
		return fmt.Errorf("the variable's name is not UTF-8: %w", ErrInvalid)
	case p.Offset < 0 || p.Width < 0 || n < 0:
		return fmt.Errorf("offset %d, width %d, %d elements: want none below 0: %w", p.Offset, p.Width, n, ErrInvalid)
	case !p.Encoding.Valid():
		return fmt.Errorf("%v is not known: %w", p.Encoding, ErrInvalid)
	case p.Rows == nil:
		return nil
	case p.Width == 0:
		return fmt.Errorf("%d rows of a variable that has none: %w", len(p.Rows), ErrInvalid)
	}
	last := int64(-1)
	for i, r := range p.Rows {
		if int64(r) <= last {
			return fmt.Errorf("row %d at place %d of %d, want more than %d: %w", r, i, len(p.Rows), last, ErrInvalid)
		}
		last = int64(r)
	}
	if n%p.Width != 0 || n/p.Width != len(p.Rows) {
		return fmt.Errorf("%d elements for %d rows of %d: %w", n, len(p.Rows), p.Width, ErrLength)
	}
	return nil
}

// payload returns the bytes that parts take on the way: their data as encoded,
// and four for each row number.
func payload(parts []Part) int64 {
	var n int64
	for i := range parts {
		n += int64(len(parts[i].Data))*int64(parts[i].Encoding.Size()) + 4*int64(len(parts[i].Rows))
	}
	return n
}
