// go-redis: its FailoverClient, or its ClusterClient, on members that fail over. See clients_failover.py.
// packages: github.com/redis/go-redis/v9
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const counter = "{go-redis}:count"

// Names an error by its kind: that of the network, or the first word of a reply.
func kind(err error) string {
	var failed net.Error
	if errors.As(err, &failed) {
		if failed.Timeout() {
			return "net:timeout"
		}
		return "net:closed"
	}
	words := strings.Fields(err.Error())
	if len(words) > 3 {
		words = words[:3]
	}
	return strings.Join(words, ":")
}

func main() {
	var client redis.UniversalClient
	nodes := strings.Split(os.Getenv("NODES"), ",")
	if os.Getenv("MODE") == "sentinel" {
		client = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: os.Getenv("NAME"), SentinelAddrs: nodes,
			DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
		})
	} else {
		client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: nodes, DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
		})
	}
	accounts, err := strconv.Atoi(os.Getenv("ACCOUNTS"))
	if err != nil {
		panic(err)
	}
	journal, err := os.OpenFile(os.Getenv("JOURNAL"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	get := func() (int64, error) {
		value, err := client.Get(ctx, counter).Int64()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		return value, err
	}
	move := func() (int64, error) {
		a := rand.Intn(accounts)
		b := (a + 1 + rand.Intn(accounts-1)) % accounts
		_, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.DecrBy(ctx, fmt.Sprintf("{bank}:%d", a), 3)
			pipe.IncrBy(ctx, fmt.Sprintf("{bank}:%d", b), 3)
			return nil
		})
		return 0, err
	}
	requests := []struct {
		name string
		run  func() (int64, error)
	}{
		{"incr", func() (int64, error) { return client.Incr(ctx, counter).Result() }},
		{"get", get},
		{"move", move},
	}
	for {
		for _, request := range requests {
			began := time.Now()
			value, err := request.run()
			result, pause := fmt.Sprintf("ok %d", value), 4*time.Millisecond
			if err != nil {
				result, pause = "error "+kind(err), 10*time.Millisecond
			}
			at := func(when time.Time) float64 { return float64(when.UnixMicro()) / 1e6 }
			fmt.Fprintf(journal, "%.6f %.6f %s %s\n", at(began), at(time.Now()), request.name, result)
			time.Sleep(pause)
		}
	}
}
