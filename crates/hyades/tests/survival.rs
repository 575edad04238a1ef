//! The example programs survive kills: each is killed while it works, again and again, and has
//! forgotten nothing reported as acknowledged.
#![allow(missing_docs, dead_code, reason = "the examples' own `main` is not called here")]

#[path = "../examples/job_queue.rs"]
mod job_queue;
#[path = "../examples/rate_limiter.rs"]
mod rate_limiter;
#[path = "../examples/session_store.rs"]
mod session_store;
#[path = "../examples/wallet.rs"]
mod wallet;

use hyades::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The environment variable that makes this program an example, by name, in a directory.
const PROGRAM: &str = "HYADES_SURVIVAL_PROGRAM";
const DIRECTORY: &str = "HYADES_SURVIVAL_DIRECTORY";

type Run = fn(&Path, &mut dyn FnMut(u64) -> bool) -> Result<(), Error>;
type Check = fn(&Path) -> Result<u64, Error>;

const PROGRAMS: [(&str, Run, Check); 4] = [
    ("wallet", wallet::run, wallet::check),
    ("rate_limiter", rate_limiter::run, rate_limiter::check),
    ("job_queue", job_queue::run, job_queue::check),
    ("session_store", session_store::run, session_store::check),
];

/// Not a test by itself: the work of the killed process.
#[test]
fn a_program_works() {
    let (Ok(name), Ok(dir)) = (std::env::var(PROGRAM), std::env::var(DIRECTORY)) else { return };
    let (_, run, _) = PROGRAMS.iter().find(|(known, ..)| *known == name).expect("a program");
    let mut out = std::io::stdout();
    run(Path::new(&dir), &mut |count| writeln!(out, "acknowledged {count}").is_ok()).unwrap();
}

#[test]
fn what_was_acknowledged_survives_kills() {
    for (name, _, check) in PROGRAMS {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().join("db");
        let mut acknowledged = 0;
        for round in 1..=3 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_program_works", "--nocapture"])
                .env(PROGRAM, name)
                .env(DIRECTORY, &dir)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let counts = lines.map_while(Result::ok);
            let counts = counts.filter_map(|line| line.split("acknowledged ").nth(1)?.parse().ok());
            for count in counts.take(50 * round) {
                acknowledged = count;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            let found = check(&dir).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found >= acknowledged, "{name}: {found} of {acknowledged} are left");
            acknowledged = found;
        }
        assert!(acknowledged > 0, "{name} did nothing");
    }
}
