package embed

import (
	"errors"
	"fmt"
	"math"
)

// MaxDims bounds the length of a vector.
const MaxDims = 8192

// A Vector is the direction in which a text points, a signed byte a dimension: the
// largest is 127 or -127. Its length says nothing. A quarter of the size of what
// models give is enough to tell which texts are near.
type Vector []byte

// Quantize returns the vector of a model's numbers.
func Quantize(numbers []float32) (Vector, error) {
	if len(numbers) == 0 || len(numbers) > MaxDims {
		return nil, fmt.Errorf("a vector of %d dimensions", len(numbers))
	}
	most := 0.0
	for _, n := range numbers {
		a := math.Abs(float64(n))
		if math.IsNaN(a) || math.IsInf(a, 0) {
			return nil, errors.New("a vector with what is no number")
		}
		most = max(most, a)
	}
	if most == 0 {
		return nil, errors.New("a vector that points nowhere")
	}
	v := make(Vector, len(numbers))
	for i, n := range numbers {
		v[i] = byte(int8(math.Round(float64(n) / most * 127))) //nolint:gosec // two's complement
	}
	return v, nil
}

func signed(b byte) int8 { return int8(b) } //nolint:gosec // two's complement

// Cosine returns how near two vectors of one length are: 1 for the same direction,
// 0 for unrelated ones.
func Cosine(a, b Vector) float64 {
	var dot, aa, bb int64
	for i := range a {
		x, y := int64(signed(a[i])), int64(signed(b[i]))
		dot, aa, bb = dot+x*y, aa+x*x, bb+y*y
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return Round(float64(dot) / math.Sqrt(float64(aa)*float64(bb)))
}

// Round cuts a similarity to six digits. Stores compute it each in its own way, and
// rank by what they have in common.
func Round(similarity float64) float64 { return math.Round(similarity*1e6) / 1e6 }

// Floats returns the numbers of a vector, for a store that computes with those.
func (v Vector) Floats() []float32 {
	out := make([]float32, len(v))
	for i, b := range v {
		out[i] = float32(signed(b))
	}
	return out
}
