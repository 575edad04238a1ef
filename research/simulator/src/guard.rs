//! Runs a history so that a panic or a hang becomes an outcome, without waiting for the hang.

use crate::case::{self, Outcome, Stage};
use crate::plan::Plan;
use hyades_platform::sync::locked;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Default time after which a history counts as hung. The longest, of 64 sessions that write
/// thousands of rows in a transaction, take 20 s of a processor, which may be busy otherwise.
pub const HANGS_AFTER: Duration = Duration::from_secs(180);

/// Runs a history on a thread of its own.
pub fn run(plan: &Plan, hangs_after: Duration) -> Outcome {
    let (own, stage) = (plan.clone(), Stage::default());
    let told = Arc::clone(&stage);
    let mut outcome = run_guarded(hangs_after, move || case::run(&own, &told));
    if let Some(hung) = &mut outcome.hung {
        hung.push_str(&format!("; in {}; {plan:?}", locked(&stage)));
    }
    outcome
}

/// Runs a history of any kind on a thread of its own.
pub(crate) fn run_guarded(
    hangs_after: Duration,
    history: impl FnOnce() -> Outcome + Send + 'static,
) -> Outcome {
    let (sender, receiver) = mpsc::channel();
    let spawned = std::thread::Builder::new().name("history".into()).spawn(move || {
        // After a hang the receiver is gone.
        let _ = sender.send(history());
    });
    match receiver.recv_timeout(hangs_after) {
        Ok(outcome) => {
            drop(spawned.map(|thread| thread.join()));
            outcome
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let mut outcome = Outcome::default();
            outcome.verdict.diverged.push("the engine panicked".to_string());
            outcome
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let after = hangs_after.as_secs_f64();
            let threads = threads("self").join(", ");
            let hung = Some(format!("it has not ended after {after} s; threads: {threads}"));
            Outcome { hung, ..Outcome::default() }
        }
    }
}

/// The threads of a process, given by its number or as `self`: name, state, the kernel function of
/// the wait, and the used ticks of processor time, as far as reported by the system. A thread that
/// spins has used much.
pub(crate) fn threads(process: &str) -> Vec<String> {
    let read = |place: std::path::PathBuf| std::fs::read_to_string(place).unwrap_or_default();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let describe = |task: std::fs::DirEntry| {
        let stat = read(task.path().join("stat"));
        // The fields follow the name, which is in parentheses: first the state, user and system
        // time eleven further on.
        let mut fields = stat.rsplit_once(") ").map_or("?", |(_, rest)| rest).split(' ');
        let state = fields.next().unwrap_or("?");
        let ticks: u64 =
            fields.skip(10).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let (name, waits) = (read(task.path().join("comm")), read(task.path().join("wchan")));
        format!("{} {state} {} after {ticks} ticks", name.trim(), waits.trim())
    };
    tasks.flatten().map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Combination;

    #[test]
    fn a_history_that_does_not_end_is_reported_and_not_waited_for() {
        let (hold, held) = mpsc::channel::<()>();
        let outcome = run_guarded(Duration::from_millis(50), move || {
            // Blocks until the test ends.
            let _ = held.recv();
            Outcome::default()
        });
        let sentence = outcome.sentences().pop().expect("it is reported");
        assert!(sentence.contains("hung") && !outcome.is_sound(), "{sentence}");
        assert!(!cfg!(target_os = "linux") || sentence.contains("history"), "{sentence}");
        drop(hold);
    }

    #[test]
    fn a_panic_is_an_outcome() {
        let outcome = run_guarded(HANGS_AFTER, || panic!("for the test"));
        assert!(!outcome.is_sound() && outcome.hung.is_none());
        let sound = run(&Plan::random(1, Combination::all()[0]), HANGS_AFTER);
        assert!(sound.is_sound(), "{:?}", sound.sentences());
    }
}
