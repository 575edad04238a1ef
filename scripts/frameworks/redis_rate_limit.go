// redis_rate: 50 requests of two processes pass, and a request a moment later.
// packages: github.com/go-redis/redis_rate/v10 github.com/redis/go-redis/v9
// kind: limit
// workers: 2
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	limiter := redis_rate.NewLimiter(client)
	passes := func(key string, limit redis_rate.Limit) (bool, error) {
		result, err := limiter.Allow(ctx, key, limit)
		return err == nil && result.Allowed > 0, err
	}
	if os.Args[1] == "work" {
		ask(func() (bool, error) {
			return passes("shared", redis_rate.Limit{Rate: 50, Burst: 50, Period: 24 * time.Hour})
		})
	}
	two := redis_rate.Limit{Rate: 2, Burst: 2, Period: 2 * time.Second}
	for _, expected := range []bool{true, true, false} {
		if passed, err := passes("own", two); passed != expected {
			refuse(fmt.Sprint("2 in 2 s are allowed, and one is not as expected: ", err))
		}
	}
	time.Sleep(1100 * time.Millisecond)
	waitFor(func() error {
		passed, err := passes("own", two)
		if err == nil && !passed {
			refuse("nothing passes after a second")
		}
		return err
	}, 30)
	allow(50)
	waitForAskers(2)
	fmt.Println("and one more after its time")
}
