//! The demo tells a durable log from a log without durability.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::{code, hyades, stderr, stdout};
use std::process::Command;

const SHORT: &str = "demo --small --seconds 0.5";

/// The figures of the two rounds in a line of the summary.
fn figures(screen: &str, label: &str) -> Vec<u64> {
    let line = screen.lines().find(|line| line.trim_start().starts_with(label));
    let rest = &line.unwrap_or_else(|| panic!("{label}: {screen}")).trim_start()[label.len()..];
    rest.split_whitespace().map(|word| word.replace(',', "").parse().unwrap()).collect()
}

#[test]
fn nothing_acknowledged_is_missing_after_a_kill_and_after_a_power_cut() {
    let output = hyades(SHORT, &[]);
    let screen = stdout(&output);
    assert_eq!(code(&output), 0, "{screen}{}", stderr(&output));
    assert!(figures(&screen, "acknowledged ").iter().all(|&n| n > 0), "{screen}");
    assert_eq!(figures(&screen, "acknowledged but missing"), [0, 0]);
    assert_eq!(figures(&screen, "partial transactions"), [0, 0]);
}

#[test]
fn without_sync_the_power_cut_loses_what_was_acknowledged_and_the_demo_says_so() {
    let output = hyades(SHORT, &["--lying-sync"]);
    let screen = stdout(&output);
    assert_eq!(code(&output), 1, "{screen}{}", stderr(&output));
    let missing = figures(&screen, "acknowledged but missing");
    assert_eq!(missing[0], 0, "killing the process alone loses nothing: {screen}");
    assert!(missing[1] > 0, "{screen}");
}

/// The demo runs redis-server, too, if installed.
#[test]
fn nothing_that_a_server_answered_is_missing_after_a_kill() {
    let output = hyades(SHORT, &["--server"]);
    let screen = stdout(&output);
    assert_eq!(code(&output), 0, "{screen}{}", stderr(&output));
    assert!(figures(&screen, "answered ")[0] > 0, "{screen}");
    assert_eq!(figures(&screen, "answered but missing")[0], 0);
    assert_eq!(figures(&screen, "accounts with a wrong balance")[0], 0);
}

/// Without the program that the demo starts, the demo tells how to get one; a program of another
/// kind or version is refused.
#[test]
fn the_replicated_demo_tells_what_it_needs() {
    let replicated = |server: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hyades"));
        command.args(["demo", "--replicated"]).env("PATH", "/nowhere");
        for name in ["HYADES_NATS_SERVER", "NATS_SERVER"] {
            command.env_remove(name);
        }
        command.args(server.into_iter().flat_map(|file| ["--nats-server", file]));
        command.output().expect("the program starts")
    };
    if cfg!(not(feature = "replication")) {
        let output = replicated(None);
        assert_eq!(code(&output), 2);
        assert!(stderr(&output).contains("--features replication"), "{}", stderr(&output));
        return;
    }
    for (server, expected) in [
        (None, "nats-server was not found"),
        (Some("/nowhere/nats-server"), "/nowhere/nats-server does not run"),
        (Some("/bin/echo"), "version 2.15 or later is needed"),
    ] {
        let output = replicated(server);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{said}");
        assert!(said.contains(expected) && said.contains("go install"), "{said}");
    }
}

/// With a `nats-server` that HYADES_NATS_SERVER names.
#[test]
#[ignore = "needs nats-server, and a minute"]
fn nothing_acknowledged_is_missing_after_failovers() {
    let output = hyades("demo --replicated --seconds 4", &[]);
    let screen = stdout(&output);
    assert_eq!(code(&output), 0, "{screen}{}", stderr(&output));
    assert_eq!(screen.lines().last(), Some("acknowledged but missing  0"), "{screen}");
    assert_eq!(figures(&screen, "transfers that happened twice"), [0], "{screen}");
}
