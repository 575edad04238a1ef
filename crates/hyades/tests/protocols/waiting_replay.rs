//! Promise: replay threads without work do not use the processor. The test runs in a process of its
//! own, because it measures the processor time of the process.

use crate::common::directory;
use hyades::{Database, Protocol, Schema, Table, Type};
use hyades_platform::clock::{monotonic_ns, process_cpu_ns};
use hyades_platform::device::{Device, FileDevice, Throttle, ThrottledDevice};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const ROWS: Table = Table::nth(0);
/// Set in the process of the test alone.
const ALONE: &str = "HYADES_WAITING_REPLAY";

fn open(dir: &Path, device: Arc<dyn Device>) -> Database {
    let mut builder =
        Database::builder().protocol(Protocol::Serial).streams(1).recovery_threads(4).log_settings(
            |log| {
                log.device = Some(device);
                log.segment_bytes = 1 << 20;
            },
        );
    let schema = Schema::new("rows").column("id", Type::I64).column("text", Type::Text);
    builder.table(schema.primary_key(&["id"]).hash());
    builder.open(dir).unwrap()
}

#[test]
fn threads_that_wait_for_a_stream_sleep() {
    if std::env::var_os(ALONE).is_some() {
        return sleeps();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "waiting_replay::threads_that_wait_for_a_stream_sleep", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("of processor time"), "it ran");
}

fn sleeps() {
    let dir = directory();
    let db = open(dir.path(), FileDevice::shared());
    let mut session = db.session().unwrap();
    let text = "x".repeat(1000);
    for id in 0..4000i64 {
        let row = [id.into(), text.as_str().into()];
        let (result, _) = session.try_submit(|tx| tx.insert(ROWS, &row)).unwrap();
        result.unwrap();
    }
    drop(session);
    db.close().unwrap();
    // Four megabytes in about two seconds, for one stream, so one of the four threads has work.
    let throttle = Throttle { bytes_per_s: Some(2e6), latency_ns: 0, depth: 1 };
    let device = Arc::new(ThrottledDevice::new(FileDevice::shared(), throttle));
    let (began, cpu_before) = (monotonic_ns(), process_cpu_ns());
    let db = open(dir.path(), device);
    let (took, cpu) = (monotonic_ns() - began, process_cpu_ns() - cpu_before);
    eprintln!("{} ms, {} ms of processor time", took / 1_000_000, cpu / 1_000_000);
    assert!(took > 500_000_000, "it read too fast to tell: {took} ns");
    assert!(cpu * 4 < took, "{cpu} ns of processor time in {took} ns");
    db.close().unwrap();
}
