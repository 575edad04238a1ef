// go-redis with its client side cache: values in the cache, seen to change, over the kill.
// packages: github.com/redis/go-redis/v9
// kill: 3
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{
		Addr: address, Protocol: 3, ClientSideCacheConfig: &redis.ClientSideCacheConfig{},
	})
	writer := redis.NewClient(&redis.Options{Addr: address})
	// Waits until the cache has the value, and until it is not asked for again.
	reads := func() string {
		for _, line := range strings.Split(writer.Info(ctx, "commandstats").Val(), "\n") {
			if strings.HasPrefix(line, "cmdstat_get:") {
				return strings.Split(line, ",")[0]
			}
		}
		return ""
	}
	see := func(value string) {
		waitFor(func() error {
			before := reads()
			text, err := client.Get(ctx, "key").Result()
			if err == nil && (text != value || before == "" || reads() != before) {
				err = errors.New("the cache has " + text)
			}
			return err
		}, 30)
		journal("done", value)
	}
	for _, value := range []string{"a", "b", "c"} {
		must(writer.Set(ctx, "key", value, 0).Err(), "SET")
		see(value)
	}
	waitFor(startedAgain, 100)
	see("c")
	for _, value := range []string{"d", "e"} {
		waitFor(func() error { return writer.Set(ctx, "key", value, 0).Err() }, 30)
		see(value)
	}
	fmt.Println("each change was seen by the cache")
}
