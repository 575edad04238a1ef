// rueidis: values in its cache (CLIENT TRACKING, by default), seen to change, over the kill.
// packages: github.com/redis/rueidis
// kill: 3
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

func main() {
	ctx := context.Background()
	option := rueidis.ClientOption{InitAddress: []string{address}}
	client, err := rueidis.NewClient(option)
	must(err, "no client")
	writer, err := rueidis.NewClient(option)
	must(err, "no client")
	set := func(value string) error {
		return writer.Do(ctx, writer.B().Set().Key("key").Value(value).Build()).Error()
	}
	// Waits until the cache has the value, and until it answers from memory.
	see := func(value string) {
		waitFor(func() error {
			result := client.DoCache(ctx, client.B().Get().Key("key").Cache(), time.Minute)
			text, err := result.ToString()
			if err == nil && (text != value || !result.IsCacheHit()) {
				err = errors.New("the cache has " + text)
			}
			return err
		}, 30)
		journal("done", value)
	}
	for _, value := range []string{"a", "b", "c"} {
		must(set(value), "SET")
		see(value)
	}
	waitFor(startedAgain, 100)
	see("c")
	for _, value := range []string{"d", "e"} {
		waitFor(func() error { return set(value) }, 30)
		see(value)
	}
	fmt.Println("each change was seen by the cache")
}
