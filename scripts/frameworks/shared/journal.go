// What the programs in Go share: the journal, and loops for queues, locks and limiters.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const jobs = 120

var (
	work    = os.Getenv("WORK")
	address = "127.0.0.1:" + os.Getenv("PORT")
)

func now() float64 { return float64(time.Now().UnixMicro()) / 1e6 }

func appendTo(name, line string) {
	file, err := os.OpenFile(filepath.Join(work, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err == nil {
		_, err = file.WriteString(line + "\n")
		file.Close()
	}
	if err != nil {
		refuse(err.Error())
	}
}

func journal(word, name string) { appendTo("journal", fmt.Sprintf("%s %s %f", word, name, now())) }

func read(name string) string {
	text, _ := os.ReadFile(filepath.Join(work, name))
	return string(text)
}

func startedAgain() error {
	if strings.Contains(read("journal"), "UP -") {
		return nil
	}
	return errors.New("the server was not started again")
}

// refuse ends the program: it has found something wrong.
func refuse(what string) {
	fmt.Println(what)
	os.Exit(1)
}

// must ends the program if there is an error.
func must(err error, what string) {
	if err != nil {
		refuse(what + ": " + err.Error())
	}
}

// waitFor calls what until it has no error.
func waitFor(what func() error, seconds int) {
	for end := time.Now().Add(time.Duration(seconds) * time.Second); ; time.Sleep(200 * time.Millisecond) {
		err := what()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			refuse("waited in vain: " + err.Error())
		}
	}
}

// doJob is what a job does. One whose name begins with r fails when it is done first.
func doJob(name string) error {
	time.Sleep(20 * time.Millisecond)
	if strings.HasPrefix(name, "r") {
		mark := filepath.Join(work, "failed-"+name)
		if file, err := os.OpenFile(mark, os.O_CREATE|os.O_EXCL, 0o644); err == nil {
			file.Close()
			journal("failed", name)
			return errors.New("fails once")
		}
	}
	journal("done", name)
	return nil
}

// addJobs calls put until enough jobs have been acknowledged.
func addJobs(put func(name string, delay time.Duration) error) {
	end := time.Now().Add(100 * time.Second)
	for added, number := 0, 1; added < jobs; number++ {
		kind, delay := "n", time.Duration(0)
		switch number % 6 {
		case 3:
			kind, delay = "d", 3*time.Second
		case 5:
			kind = "r"
		}
		name, start := kind+strconv.Itoa(number), now()
		if err := put(name, delay); err != nil {
			if time.Now().After(end) {
				refuse(err.Error())
			}
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(300 * time.Millisecond)
			continue
		}
		appendTo("acked", fmt.Sprintf("%s %f %f %f", name, start+delay.Seconds(), start, now()))
		added++
		time.Sleep(20 * time.Millisecond)
	}
}

// countUnder counts in a file, in sections that a lock guards: section(body) runs body under it.
func countUnder(section func(body func()) error) {
	for finished := false; !finished; time.Sleep(5 * time.Millisecond) {
		err := section(func() {
			number, _ := strconv.Atoi(read("counter"))
			if number >= jobs {
				finished = true
				return
			}
			time.Sleep(10 * time.Millisecond)
			number++
			os.WriteFile(filepath.Join(work, "counter"), []byte(strconv.Itoa(number)), 0o644)
			journal("done", strconv.Itoa(number))
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	select {}
}

func waitForCount() {
	waitFor(func() error {
		if read("counter") != strconv.Itoa(jobs) {
			return errors.New("the count is " + read("counter"))
		}
		return nil
	}, 100)
}

// ask asks a limiter again and again: limiter is true if the request passes.
func ask(limiter func() (bool, error)) {
	for read("allowed") == "" { // main begins
		time.Sleep(50 * time.Millisecond)
	}
	for number := 0; number < 60; number++ {
		name := fmt.Sprintf("%d-%d", os.Getpid(), number)
		switch passes, err := limiter(); {
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			journal("lost", name)
			time.Sleep(300 * time.Millisecond)
		case passes:
			journal("done", name)
		default:
			journal("failed", name)
		}
		time.Sleep(30 * time.Millisecond)
	}
	appendTo("asked", "all")
	select {}
}

func allow(number int) { appendTo("allowed", strconv.Itoa(number)) }

func waitForAskers(count int) {
	waitFor(func() error {
		if strings.Count(read("asked"), "all") != count {
			return errors.New("not all have asked")
		}
		return nil
	}, 100)
}
