package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/bench/process"
)

// The scripts do what a reservation needs in one atomic step: look the key up, check, take, record
// with the time of expiry, and note it as due then. A sold-out answer writes nothing. They keep
// no ledger.
//
// Keys: s:<sku> is what is free, sold what was confirmed, r:<id> a reservation, due the holds by
// expiry, k:<key> the reservation that a key made.
const (
	// reserveOneScript: KEYS stock, reservation, due, idempotency key or ""; ARGV quantity, expiry (ms), id, sku.
	reserveOneScript = `
if KEYS[4] ~= '' then
  local seen = redis.call('GET', KEYS[4])
  if seen then return seen end
end
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then return 0 end
redis.call('DECRBY', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], 'sku', ARGV[4], 'quantity', ARGV[1], 'expires', ARGV[2])
redis.call('ZADD', KEYS[3], ARGV[2], ARGV[3])
if KEYS[4] ~= '' then redis.call('SET', KEYS[4], ARGV[3], 'EX', 86400) end
return 1`

	// reserveCartScript: KEYS reservation, due, idempotency key or "", stock …; ARGV expiry, id, then sku and quantity of each line.
	reserveCartScript = `
if KEYS[3] ~= '' then
  local seen = redis.call('GET', KEYS[3])
  if seen then return seen end
end
for i = 4, #KEYS do
  if tonumber(redis.call('GET', KEYS[i]) or 0) < tonumber(ARGV[2*i-4]) then return 0 end
end
local record = {'expires', ARGV[1]}
for i = 4, #KEYS do
  redis.call('DECRBY', KEYS[i], ARGV[2*i-4])
  record[#record+1] = 'sku:' .. ARGV[2*i-5]
  record[#record+1] = ARGV[2*i-4]
end
redis.call('HSET', KEYS[1], unpack(record))
redis.call('ZADD', KEYS[2], ARGV[1], ARGV[2])
if KEYS[3] ~= '' then redis.call('SET', KEYS[3], ARGV[2], 'EX', 86400) end
return 1`

	// settleScript confirms or releases: KEYS reservation, due, sold or the stock; ARGV id, now (ms).
	settleScript = `
local r = redis.call('HMGET', KEYS[1], 'quantity', 'expires', 'settled')
if not r[1] or r[3] or tonumber(r[2]) <= tonumber(ARGV[2]) then return redis.error_reply('not held') end
redis.call('HSET', KEYS[1], 'settled', 1)
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('INCRBY', KEYS[3], r[1])
return 1`
)

func digest(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

var reserveOneSHA, reserveCartSHA, settleSHA = digest(reserveOneScript), digest(reserveCartScript), digest(settleScript)

// errNoRedis means that its column is left out.
var errNoRedis = errors.New("no redis-server is installed")

// redis is a server of its own with an append-only file.
type redis struct {
	address string
	process *process.Process
	conns   int // that the pipelined commands of all callers are spread over
}

// startRedis starts a server that appends and, as appendfsync says, flushes.
func (s *stage) startRedis(ctx context.Context, appendfsync string) (*redis, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errNoRedis
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	// A rewrite of the file would fall into somebody's measurement.
	cmd := exec.CommandContext(ctx, path, "--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
		"--appendonly", "yes", "--appenddirname", "redis-"+appendfsync, "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	p, err := process.Start(cmd, filepath.Join(s.dir, "redis-"+appendfsync+".log"))
	if err != nil {
		return nil, err
	}
	r := &redis{address: address, process: p, conns: 1}
	err = p.Await(func() error {
		_, err := r.ask("PING")
		return err
	})
	for _, script := range []string{reserveOneScript, reserveCartScript, settleScript} {
		if err == nil {
			_, err = r.ask("SCRIPT", "LOAD", script)
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return r, nil
}

// ask sends one command and returns its answer's text.
func (r *redis) ask(words ...string) (string, error) {
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(appendWords(nil, words...)); err != nil {
		return "", err
	}
	return readAnswer(bufio.NewReader(conn))
}

// stockUp empties the server and gives it units of some SKUs.
func (r *redis) stockUp(units int64, skus []string) error {
	if _, err := r.ask("FLUSHALL"); err != nil {
		return err
	}
	const atOnce = 1000
	for len(skus) > 0 {
		n := min(atOnce, len(skus))
		words := []string{"MSET"}
		for _, sku := range skus[:n] {
			words = append(words, "s:"+sku, strconv.FormatInt(units, 10))
		}
		if _, err := r.ask(words...); err != nil {
			return err
		}
		skus = skus[n:]
	}
	return nil
}

// play sends the commands of all buyers through a few connections, each buyer's next as soon as
// it has its answer: a pipeline as deep as there are buyers.
func (r *redis) play(ctx context.Context, buyers []*buyer, w *stopwatch) []timing {
	n := min(r.conns, len(buyers))
	timings := make([]timing, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			t := &timings[i]
			if err := r.pipeline(ctx, buyers[i*len(buyers)/n:(i+1)*len(buyers)/n], w, t); err != nil {
				t.failed(err)
			}
		})
	}
	all.Wait()
	return timings
}

// sent is a command that is on its way.
type sent struct {
	buyer *buyer
	command
	at time.Time
}

func (r *redis) pipeline(ctx context.Context, buyers []*buyer, w *stopwatch, t *timing) error {
	conn, err := net.Dial("tcp", r.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	in := bufio.NewReaderSize(conn, 64<<10)
	out := make([]byte, 0, 256<<10)
	// Answers come in the order of the commands.
	way := make([]sent, len(buyers))
	first, underWay := 0, 0
	send := func(b *buyer, now time.Time) {
		if !w.more(now) {
			return
		}
		c := b.next()
		if c.kind == reserve {
			c.id = newID(b.random)
		}
		out = appendCommand(out, c, now)
		way[(first+underWay)%len(way)] = sent{b, c, now}
		underWay++
	}
	now := time.Now()
	for _, b := range buyers {
		send(b, now)
	}
	for underWay > 0 {
		// Answered before they are written: everything that can be sent at once goes in one write.
		if in.Buffered() == 0 {
			if _, err := conn.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		answer, err := readAnswer(in)
		now := time.Now()
		s := way[first]
		first, underWay = (first+1)%len(way), underWay-1
		switch {
		case err == nil && answer == "1":
			s.buyer.answered(s.command, s.id, done)
			t.note(w, s.at, now)
		case err == nil && answer == "0":
			s.buyer.answered(s.command, "", soldOut)
			t.note(w, s.at, now)
		case err == nil:
			t.failed(errors.New("a key was seen before"))
		case errors.As(err, new(redisError)):
			t.failed(err)
		default:
			return err
		}
		send(s.buyer, now)
	}
	return nil
}

func newID(r *rand.Rand) string {
	var id [16]byte
	for i := range 8 {
		id[i] = byte(r.Uint32())
		id[i+8] = byte(r.Uint32())
	}
	return hex.EncodeToString(id[:])
}

func appendCommand(out []byte, c command, now time.Time) []byte {
	expires := strconv.FormatInt(now.Add(24*time.Hour).UnixMilli(), 10)
	key := ""
	if c.key != "" {
		key = "k:" + c.key
	}
	switch {
	case c.kind == confirm || c.kind == release:
		to := "sold"
		if c.kind == release {
			to = "s:" + hotSKU
		}
		return appendWords(out, "EVALSHA", settleSHA, "3", "r:"+c.id, "due", to, c.id, strconv.FormatInt(now.UnixMilli(), 10))
	case len(c.lines) == 1:
		l := c.lines[0]
		return appendWords(out, "EVALSHA", reserveOneSHA, "4", "s:"+l.sku, "r:"+c.id, "due", key,
			strconv.FormatInt(l.quantity, 10), expires, c.id, l.sku)
	}
	words := []string{"EVALSHA", reserveCartSHA, strconv.Itoa(3 + len(c.lines)), "r:" + c.id, "due", key}
	for _, l := range c.lines {
		words = append(words, "s:"+l.sku)
	}
	words = append(words, expires, c.id)
	for _, l := range c.lines {
		words = append(words, l.sku, strconv.FormatInt(l.quantity, 10))
	}
	return appendWords(out, words...)
}

func appendWords(out []byte, words ...string) []byte {
	out = append(strconv.AppendInt(append(out, '*'), int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		out = append(strconv.AppendInt(append(out, '$'), int64(len(word)), 10), "\r\n"...)
		out = append(append(out, word...), "\r\n"...)
	}
	return out
}

// redisError is the server's refusal of one command.
type redisError string

func (e redisError) Error() string { return "redis: " + string(e) }

// readAnswer reads one answer that isn't a list.
func readAnswer(in *bufio.Reader) (string, error) {
	text, err := in.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 {
		return "", errors.New("redis: an empty answer")
	}
	switch text[0] {
	case '+', ':':
		return string(text[1:]), nil
	case '-':
		return "", redisError(text[1:])
	case '$':
		n, err := strconv.Atoi(string(text[1:]))
		if err != nil || n < 0 {
			return "", err
		}
		content := make([]byte, n+2)
		if _, err := io.ReadFull(in, content); err != nil {
			return "", err
		}
		return string(content[:n]), nil
	}
	return "", fmt.Errorf("redis: unexpected answer %q", text)
}

// check compares what callers were told with what is left of the units and with the holds.
func (r *redis) check(told books, units int64, skus []string) error {
	var free int64
	for _, sku := range skus {
		text, err := r.ask("GET", "s:"+sku)
		if err != nil {
			return err
		}
		n, _ := strconv.ParseInt(text, 10, 64)
		free += n
	}
	text, err := r.ask("GET", "sold")
	if err != nil {
		return err
	}
	sold, _ := strconv.ParseInt(text, 10, 64)
	return told.compare(units*int64(len(skus))-free-sold, sold)
}

// version is what the server calls itself.
func (r *redis) version() string {
	text, _ := r.ask("INFO", "server")
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}
