package artifact

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// MaxDecimalDigits bounds a signal's value, before and after the point.
const MaxDecimalDigits = 30

// A Decimal is an exact decimal number, as signals carry. The zero Decimal is 0.
type Decimal struct {
	r big.Rat
}

// ParseDecimal reads a JSON number exactly. A number of more than
// [MaxDecimalDigits] digits before or after the point is an error.
func ParseDecimal(s string) (Decimal, error) {
	var d Decimal
	if len(s) > 2*MaxDecimalDigits || strings.ContainsAny(s, "/_xXpPbo") {
		return d, fmt.Errorf("%q is not a decimal number of bearable size", s)
	}
	if mantissa, exponent, ok := strings.Cut(strings.ToLower(s), "e"); ok {
		var n int
		if _, err := fmt.Sscanf(exponent, "%d", &n); err != nil || n < -MaxDecimalDigits || n > MaxDecimalDigits || mantissa == "" {
			return d, fmt.Errorf("%q is not a decimal number of bearable size", s)
		}
	}
	if _, ok := d.r.SetString(s); !ok {
		return d, fmt.Errorf("%q is not a decimal number", s)
	}
	whole, fraction, _ := strings.Cut(strings.TrimPrefix(d.String(), "-"), ".")
	if len(whole) > MaxDecimalDigits || len(fraction) > MaxDecimalDigits {
		return Decimal{}, fmt.Errorf("%q has more than %d digits before or after the point", s, MaxDecimalDigits)
	}
	return d, nil
}

// DecimalOf returns the decimal that a schema's number is written as: 0.1 is a
// tenth, and not the double next to it.
func DecimalOf(v float64) (d Decimal) {
	d.r.SetString(strconv.FormatFloat(v, 'g', -1, 64))
	return d
}

// ParseSum reads a number that sums of decimals made, of whatever size.
func ParseSum(s string) (Decimal, error) {
	var d Decimal
	if _, ok := d.r.SetString(s); !ok {
		return d, fmt.Errorf("%q is not a decimal number", s)
	}
	return d, nil
}

// String returns d in full, without exponent or trailing zeros.
func (d Decimal) String() string {
	digits, exact := d.r.FloatPrec()
	if !exact {
		digits = MaxDecimalDigits
	}
	return d.r.FloatString(digits)
}

// Float returns the double nearest to d.
func (d Decimal) Float() float64 {
	f, _ := d.r.Float64()
	return f
}

// Add returns d + e.
func (d Decimal) Add(e Decimal) (sum Decimal) {
	sum.r.Add(&d.r, &e.r)
	return sum
}

// Sub returns d − e.
func (d Decimal) Sub(e Decimal) (difference Decimal) {
	difference.r.Sub(&d.r, &e.r)
	return difference
}

// Mul returns d × e.
func (d Decimal) Mul(e Decimal) (product Decimal) {
	product.r.Mul(&d.r, &e.r)
	return product
}

// Compare returns -1, 0 or 1 as d is less than, equal to or greater than e.
func (d Decimal) Compare(e Decimal) int { return d.r.Cmp(&e.r) }

// Equal reports whether d and e are one number.
func (d Decimal) Equal(e Decimal) bool { return d.r.Cmp(&e.r) == 0 }
