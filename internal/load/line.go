package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxLine is the longest line that is read, in bytes without its newline.
const MaxLine = 4 << 20

// A place is where a line stands.
type place struct {
	file   string
	line   int   // in the file, from 1
	number int64 // over all inputs, from 1
}

// eachLine calls f with each line of an input, without the white space around
// it. A line longer than [MaxLine] comes without its bytes. The line is f's to keep.
func eachLine(in Input, f func(n int, line []byte, tooLong bool) error) error {
	r, err := in.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	b := bufio.NewReaderSize(r, 256<<10)
	for n := 1; ; n++ {
		line, tooLong, err := readLine(b)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", in.Name, err)
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff")) // some editors begin a file with it
		}
		if err := f(n, bytes.Trim(line, " \t\r\n"), tooLong); err != nil {
			return err
		}
	}
}

// readLine returns the next line, or io.EOF after the last.
func readLine(b *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := b.ReadSlice('\n')
		switch {
		case len(line)+len(bytes.TrimSuffix(part, []byte("\n"))) > MaxLine:
			line, tooLong = nil, true
		case !tooLong:
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (tooLong || len(line) > 0):
			return line, tooLong, nil
		default:
			return line, tooLong, err
		}
	}
}

// lineCount counts an input's lines.
func lineCount(ctx context.Context, in Input) (n int64, err error) {
	r, err := in.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	buf := make([]byte, 256<<10)
	open := false // a line without its newline
	for ctx.Err() == nil {
		k, err := r.Read(buf)
		if k > 0 {
			n += int64(bytes.Count(buf[:k], []byte("\n")))
			open = !bytes.HasSuffix(buf[:k], []byte("\n"))
		}
		if errors.Is(err, io.EOF) {
			if open {
				n++
			}
			return n, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", in.Name, err)
		}
	}
	return 0, ctx.Err()
}

// Spool copies what can be read only once, such as standard input, to a
// temporary file and returns it as an input. The file is gone once close is
// called, or the process has ended.
//
// A reader that blocks when ctx ends is left behind with its goroutine: nothing
// can interrupt a read from a terminal.
func Spool(ctx context.Context, name string, r io.Reader) (in Input, closeSpool func() error, err error) {
	f, err := os.CreateTemp("", "scidex-load-*.jsonl")
	if err != nil {
		return in, nil, fmt.Errorf("spool %s: %w", name, err)
	}
	early := os.Remove(f.Name()) == nil // where open files may be removed, nothing is left behind
	closeSpool = func() error {
		err := f.Close()
		if !early {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		return err
	}
	type copied struct {
		size int64
		err  error
	}
	done := make(chan copied, 1)
	go func() {
		size, err := io.Copy(f, r)
		done <- copied{size, err}
	}()
	select {
	case c := <-done:
		if c.err != nil {
			return in, nil, errors.Join(fmt.Errorf("spool %s: %w", name, c.err), closeSpool())
		}
		return Input{Name: name, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.NewSectionReader(f, 0, c.size)), nil
		}}, closeSpool, nil
	case <-ctx.Done():
		return in, nil, errors.Join(ctx.Err(), closeSpool())
	}
}

// File returns the input of a regular file.
func File(name string) Input {
	return Input{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }}
}
