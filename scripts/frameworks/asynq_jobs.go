// asynq: tasks, with ProcessIn and with retries, by a server that does four at once.
// packages: github.com/hibiken/asynq
// kind: queue
// slots: 4
// patience: 100
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	redis := asynq.RedisClientOpt{Addr: address}
	if os.Args[1] == "work" {
		server := asynq.NewServer(redis, asynq.Config{
			Concurrency:              4,
			TaskCheckInterval:        200 * time.Millisecond,
			DelayedTaskCheckInterval: time.Second,
			RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return time.Second },
		})
		must(server.Run(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			return doJob(string(task.Payload()))
		})), "the server ended")
		return
	}
	client := asynq.NewClient(redis)
	addJobs(func(name string, delay time.Duration) error {
		if delay > 0 {
			delay += time.Second // it drops fractions of a second
		}
		_, err := client.Enqueue(asynq.NewTask("job", []byte(name)),
			asynq.TaskID(name), asynq.ProcessIn(delay), asynq.MaxRetry(5))
		return err
	})
	inspector := asynq.NewInspector(redis)
	info, err := inspector.GetQueueInfo("default")
	must(err, "the inspector")
	fmt.Printf("the inspector counts %d failures\n", info.FailedTotal)
}
