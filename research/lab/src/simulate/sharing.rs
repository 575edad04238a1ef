//! Measures the costs of sharing between threads of this machine: lines of caches, locks, sleep
//! and memory.

use hyades_scaling::costs::SharingCosts;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// The most lines that move together, as the content of a place in a window of sixteen streams.
const LINES: usize = 9;

/// Measures the time to move a line from one core to another, and all further costs.
pub(super) fn measure() -> (f64, SharingCosts) {
    // A busy machine makes some attempts too slow, and none too fast.
    let (line, many) = (move_ns(1), move_ns(LINES));
    let (wake_ns, notify_ns) = wake_and_notify();
    let costs = SharingCosts {
        lock_ns: least(lock_ns),
        further_line_ns: ((many - line) / (LINES - 1) as f64).clamp(0.0, line),
        wake_ns,
        notify_ns,
        pause_ns: least(pause_ns),
        copy_bandwidth: copy_bandwidth(),
    };
    (line.clamp(5.0, 1_000.0), costs)
}

fn least(measure: impl Fn() -> f64) -> f64 {
    (0..9).map(|_| measure()).fold(f64::INFINITY, f64::min)
}

fn each(began: Instant, count: u64) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

/// The value that ends the game of [`move_ns`].
const OVER: u64 = u64::MAX;

/// The time of a move of `lines` adjacent lines to the other core. Each thread in turn writes the
/// other lines, then the first. The fastest of many short games counts: on a busy machine the
/// threads are rarely on two cores at once.
fn move_ns(lines: usize) -> f64 {
    const GAMES: usize = 2_000;
    const ROUNDS: u64 = 64;
    let longest = Duration::from_millis(500);
    let ball: [Line; LINES] = Default::default();
    let turn = |next: u64| {
        let mut spins = 0_u32;
        loop {
            // Acquire and Release, as the places of a window move with their lock.
            match ball[0].0.load(Ordering::Acquire) {
                now if now == next => break,
                OVER => return false,
                _ => {}
            }
            spins += 1;
            // Both threads may be on the same core.
            if spins.is_multiple_of(10_000) {
                std::thread::yield_now();
            }
            spin_loop();
        }
        for further in &ball[1..lines] {
            let value = further.0.load(Ordering::Relaxed);
            further.0.store(value + 1, Ordering::Relaxed);
        }
        ball[0].0.store(next + 1, Ordering::Release);
        true
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (1..).step_by(2).take_while(|next| turn(*next)).count());
        let (start, mut best, mut next) = (Instant::now(), f64::INFINITY, 0);
        for _ in 0..GAMES {
            let began = Instant::now();
            for _ in 0..ROUNDS / 2 {
                turn(next);
                next += 2;
            }
            best = each(began, ROUNDS).min(best);
            if start.elapsed() > longest && best.is_finite() {
                break;
            }
        }
        // The other thread has had its turn.
        while ball[0].0.load(Ordering::Acquire) != next {
            std::thread::yield_now();
        }
        ball[0].0.store(OVER, Ordering::Release);
        best
    })
}

/// The time to lock and unlock a mutex that no other thread uses.
fn lock_ns() -> f64 {
    const ROUNDS: u64 = 20_000;
    let lock = Mutex::new(0_u64);
    let began = Instant::now();
    for _ in 0..ROUNDS {
        if let Ok(mut count) = black_box(&lock).lock() {
            *count += 1;
        }
    }
    each(began, ROUNDS)
}

/// The time of a round of an idle thread: it looks at two numbers of each of sixteen streams.
fn pause_ns() -> f64 {
    const ROUNDS: u64 = 5_000;
    let lanes: [[Line; 2]; 16] = Default::default();
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let of_lane = |lane: &[Line; 2]| {
            lane[0].0.load(Ordering::Acquire).wrapping_add(lane[1].0.load(Ordering::Acquire))
        };
        black_box(black_box(&lanes).iter().map(of_lane).fold(0, u64::wrapping_add));
        spin_loop();
    }
    each(began, ROUNDS)
}

/// The time from the notification of a sleeping thread until the thread runs, and the time that the
/// notifying thread takes: the medians, in nanoseconds.
fn wake_and_notify() -> (f64, f64) {
    const ROUNDS: usize = 101;
    let (lock, condvar) = (Mutex::new(0_usize), Condvar::new());
    let (sleeps, woken) = (AtomicUsize::new(0), AtomicU64::new(0));
    let start = Instant::now();
    let mut times: Vec<(f64, f64)> = Vec::with_capacity(ROUNDS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                let Ok(mut at) = lock.lock() else { return };
                sleeps.store(round, Ordering::Release);
                while *at < round {
                    let Ok(next) = condvar.wait(at) else { return };
                    at = next;
                }
                woken.store(start.elapsed().as_nanos() as u64, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            while sleeps.load(Ordering::Acquire) < round {
                std::thread::yield_now();
            }
            // Long enough for the thread to sleep.
            std::thread::sleep(Duration::from_micros(200));
            woken.store(0, Ordering::Release);
            if let Ok(mut at) = lock.lock() {
                *at = round;
            }
            let began = start.elapsed().as_nanos() as u64;
            condvar.notify_all();
            let notified = start.elapsed().as_nanos() as u64;
            let mut until = 0;
            while until == 0 {
                until = woken.load(Ordering::Acquire);
                spin_loop();
            }
            times.push((until.saturating_sub(began) as f64, (notified - began) as f64));
        }
    });
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    };
    let wakes = times.iter().map(|(wake, _)| *wake).collect();
    (median(wakes), median(times.iter().map(|(_, notify)| *notify).collect()))
}

/// Bytes per second that two threads copy together, from and to memory beyond the caches.
fn copy_bandwidth() -> f64 {
    const BYTES: usize = 64 << 20;
    let copy = || {
        let from = vec![1_u8; BYTES];
        let mut to = vec![0_u8; BYTES];
        let began = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&to);
        BYTES as f64 / began.elapsed().as_secs_f64()
    };
    let both = || {
        std::thread::scope(|scope| {
            let other = scope.spawn(copy);
            copy() + other.join().unwrap_or(0.0)
        })
    };
    (0..5).map(|_| both()).fold(0.0, f64::max)
}
