// redsync: exclusion of three processes, expiry, extension, a lock that is held over the kill.
// packages: github.com/go-redsync/redsync/v4 github.com/redis/go-redis/v9
// kind: lock
// workers: 3
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func main() {
	locks := redsync.New(goredis.NewPool(redis.NewClient(&redis.Options{Addr: address})))
	if os.Args[1] == "work" {
		countUnder(func(body func()) error {
			lock := locks.NewMutex("counter", redsync.WithExpiry(5*time.Second))
			if err := lock.Lock(); err != nil {
				return err
			}
			body()
			_, err := lock.Unlock()
			return err
		})
	}
	held := locks.NewMutex("held", redsync.WithExpiry(100*time.Second))
	must(held.Lock(), "a free lock was not given")
	lock := locks.NewMutex("short", redsync.WithExpiry(4*time.Second))
	other := locks.NewMutex("short", redsync.WithExpiry(4*time.Second))
	must(lock.Lock(), "a free lock was not given")
	if other.TryLock() == nil {
		refuse("a lock was given to two")
	}
	time.Sleep(2500 * time.Millisecond)
	if ok, err := lock.Extend(); !ok {
		refuse(fmt.Sprint("a lock was not extended: ", err))
	}
	time.Sleep(2500 * time.Millisecond)
	if other.TryLock() == nil {
		refuse("a lock that was extended has expired too early")
	}
	time.Sleep(2500 * time.Millisecond)
	must(other.TryLock(), "a lock has not expired")
	if ok, _ := lock.Unlock(); ok {
		refuse("a lock was released by another than its owner")
	}
	waitFor(startedAgain, 100)
	time.Sleep(500 * time.Millisecond)
	if locks.NewMutex("held").TryLock() == nil {
		refuse("a lock that is held was given to another")
	}
	if ok, err := held.Extend(); !ok {
		refuse(fmt.Sprint("a lock was lost: ", err))
	}
	waitForCount()
	fmt.Println("expiry, extension, a lock held over the kill")
}
