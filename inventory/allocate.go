package inventory

import (
	"math/bits"
	"slices"
)

// Allocation is the order in which locations give units of a line that names none.
type Allocation string

const (
	// Prefer takes from the locations in the order of their rank, then of their name.
	Prefer Allocation = "prefer"
	// Fewest takes from as few locations as can serve all lines together, the preferred ones among
	// equals. With more than ten locations it takes, again and again, the one that serves most.
	Fewest Allocation = "fewest"
	// Spread takes from each location in proportion to what is free there.
	Spread Allocation = "spread"
)

// draft is what a command would take, before it is known whether it can have everything.
type draft struct {
	items     map[string]*item
	left      map[*item]int64  // free of the SKU as a whole
	leftAt    map[*shelf]int64 // free at a location
	lines     []Line
	shortages []Shortage
}

// allot finds units for lines at locations: first for the lines that name one, then for the others.
// It changes nothing. What isn't free stands in the shortages, in the order of the lines.
func allot(items map[string]*item, lines []Line, by Allocation, partial bool) draft {
	if len(lines) == 1 && len(items[lines[0].SKU].shelves) == 1 {
		return allotOne(items[lines[0].SKU], lines[0], partial)
	}
	d := draft{items: items, left: map[*item]int64{}, leftAt: map[*shelf]int64{}}
	for _, l := range lines {
		i := items[l.SKU]
		d.left[i] = i.free()
		for _, s := range i.shelves {
			d.leftAt[s] = s.free()
		}
	}
	granted, shares := make([]int64, len(lines)), make([][]Line, len(lines))
	for n, l := range lines {
		if l.Location != "" {
			s := items[l.SKU].at(l.Location)
			granted[n] = d.grant(l, s)
			shares[n] = d.take(nil, s, granted[n])
		}
	}
	open := make([]Line, 0, len(lines))
	for n, l := range lines {
		if l.Location == "" {
			granted[n] = d.grant(l, nil)
			open = append(open, Line{SKU: l.SKU, Quantity: granted[n]})
		}
	}
	var chosen []string
	if by == Fewest {
		chosen = d.fewest(open)
	}
	for n, l := range lines {
		if l.Location == "" {
			shares[n] = d.share(items[l.SKU], granted[n], by, chosen)
		}
	}
	for n, l := range lines {
		d.add(l, granted[n], shares[n], partial)
	}
	return d
}

// allotOne is the common case: one line of a SKU that is kept at one location.
func allotOne(i *item, l Line, partial bool) (d draft) {
	s := i.shelves[0]
	if l.Location != "" && l.Location != s.location {
		d.add(l, 0, nil, partial)
		return d
	}
	granted := min(l.Quantity, i.free(), s.free())
	d.add(l, granted, []Line{{SKU: l.SKU, Location: s.location, Quantity: granted}}, partial)
	return d
}

// grant says how much of a line there is, and sets it aside.
func (d *draft) grant(l Line, s *shelf) int64 {
	i := d.items[l.SKU]
	free := d.left[i]
	if l.Location != "" {
		free = min(free, d.leftAt[s]) // 0 where there is no shelf
	} else {
		var at int64
		for _, s := range i.shelves {
			at += d.leftAt[s]
		}
		free = min(free, at)
	}
	granted := min(l.Quantity, free)
	d.left[i] -= granted
	return granted
}

// take puts units of a shelf to the shares of a line.
func (d *draft) take(shares []Line, s *shelf, units int64) []Line {
	if units == 0 {
		return shares
	}
	d.leftAt[s] -= units
	return append(shares, Line{SKU: s.sku, Location: s.location, Quantity: units})
}

// share divides the units of a line among locations.
func (d *draft) share(i *item, units int64, by Allocation, chosen []string) (shares []Line) {
	if by == Spread {
		return d.spread(i, units)
	}
	for _, s := range i.shelves {
		if by != Fewest || slices.Contains(chosen, s.location) {
			here := min(units, d.leftAt[s])
			shares = d.take(shares, s, here)
			units -= here
		}
	}
	return shares
}

// spread gives each location its part of the units, rounded so that they add up.
func (d *draft) spread(i *item, units int64) (shares []Line) {
	var rest int64 // free at the locations that are still to come
	for _, s := range i.shelves {
		rest += d.leftAt[s]
	}
	for _, s := range i.shelves {
		free := d.leftAt[s]
		if rest == 0 {
			break
		}
		// Rounded to the nearest; what it is off by, the rest makes up for.
		hi, lo := bits.Mul64(uint64(units), uint64(free))
		lo, carry := bits.Add64(lo, uint64(rest)/2, 0)
		part, _ := bits.Div64(hi+carry, lo, uint64(rest))
		here := max(min(int64(part), free), units-(rest-free))
		shares = d.take(shares, s, here)
		units, rest = units-here, rest-free
	}
	return shares
}

// exhaustive is up to how many locations every choice of them is tried.
const exhaustive = 10

// fewest chooses locations that can serve all the lines. Each choice serves what the lines were
// granted, since all locations together can.
func (d *draft) fewest(lines []Line) []string {
	var names []string
	ranked := []*shelf{}
	for _, l := range lines {
		for _, s := range d.items[l.SKU].shelves {
			if d.leftAt[s] > 0 && !slices.Contains(names, s.location) {
				names, ranked = append(names, s.location), append(ranked, s)
			}
		}
	}
	slices.SortStableFunc(ranked, preferred)
	for n, s := range ranked {
		names[n] = s.location
	}
	if len(names) > exhaustive {
		return d.greedy(lines, names)
	}
	best := names
	for choice := range 1 << len(names) {
		if bits.OnesCount(uint(choice)) >= len(best) {
			continue
		}
		var some []string
		for n, name := range names {
			if choice&(1<<n) != 0 {
				some = append(some, name)
			}
		}
		if d.served(lines, some) == total(lines) {
			best = some
		}
	}
	return best
}

// greedy adds, again and again, the location that serves most of what is missing.
func (d *draft) greedy(lines []Line, names []string) (chosen []string) {
	for served := int64(-1); served < total(lines); {
		best := ""
		for _, name := range names {
			if n := d.served(lines, append(chosen[:len(chosen):len(chosen)], name)); n > served {
				served, best = n, name
			}
		}
		if best == "" {
			break
		}
		chosen = append(chosen, best)
	}
	return chosen
}

// served is how many units of the lines some locations have.
func (d *draft) served(lines []Line, locations []string) (units int64) {
	for _, l := range lines {
		var here int64
		for _, s := range d.items[l.SKU].shelves {
			if slices.Contains(locations, s.location) {
				here += d.leftAt[s]
			}
		}
		units += min(here, l.Quantity)
	}
	return units
}

func total(lines []Line) (units int64) {
	for _, l := range lines {
		units += l.Quantity
	}
	return units
}

// add puts a line's shares to the draft. With partial they say what was wanted, together as much as the line.
func (d *draft) add(l Line, granted int64, shares []Line, partial bool) {
	if granted < l.Quantity {
		d.shortages = append(d.shortages, Shortage{SKU: l.SKU, Location: l.Location, Wanted: l.Quantity, Available: granted})
	}
	if granted == 0 {
		return
	}
	for n, share := range shares {
		wanted := share.Quantity
		if n == len(shares)-1 {
			wanted += l.Quantity - granted
		}
		same := slices.IndexFunc(d.lines, func(m Line) bool { return m.SKU == share.SKU && m.Location == share.Location })
		switch {
		case same < 0 && partial:
			share.Wanted = &wanted
			d.lines = append(d.lines, share)
		case same < 0:
			d.lines = append(d.lines, share)
		default:
			d.lines[same].Quantity += share.Quantity
			if partial {
				*d.lines[same].Wanted += wanted
			}
		}
	}
}
