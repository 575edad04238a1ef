//! Metrics, read from the JSON object printed by a run.

use serde_json::Value;

/// A part of the workers' time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePart {
    /// The transaction's own code.
    Logic,
    /// Finding rows, changing indexes.
    Index,
    /// Concurrency control.
    Control,
    /// What the logging protocol keeps about rows.
    Tracking,
    /// What the logging protocol adds to a record.
    Stamp,
    /// Encoding the record.
    Record,
    /// Taking a place in the log.
    Place,
    /// Filling the buffer.
    Buffer,
    /// Waiting for room in the buffer.
    Wait,
    /// The benchmark's driver.
    Driver,
    /// Outside of attempts, without a processor.
    Idle,
}

impl TimePart {
    /// All parts, in the order of figures.
    pub const ALL: [TimePart; 11] = [
        TimePart::Logic,
        TimePart::Index,
        TimePart::Control,
        TimePart::Tracking,
        TimePart::Stamp,
        TimePart::Record,
        TimePart::Place,
        TimePart::Buffer,
        TimePart::Wait,
        TimePart::Driver,
        TimePart::Idle,
    ];

    /// The name in figures, and where a run's JSON has the time.
    const fn described(self) -> (&'static str, &'static str) {
        match self {
            TimePart::Logic => ("transaction logic", "/phases/us/logic"),
            TimePart::Index => ("index", "/phases/us/index"),
            TimePart::Control => ("concurrency control", "/phases/us/control"),
            TimePart::Tracking => ("stamps of rows", "/phases/us/tracking"),
            TimePart::Stamp => ("vector, list or number", "/phases/us/stamp"),
            TimePart::Record => ("record", "/phases/us/record"),
            TimePart::Place => ("place in the log", "/phases/us/place"),
            TimePart::Buffer => ("buffer", "/phases/us/buffer"),
            TimePart::Wait => ("wait for the buffer", "/phases/us/wait"),
            TimePart::Driver => ("driver", "/phases/driver_us"),
            TimePart::Idle => ("idle", "/phases/idle_us"),
        }
    }

    /// The name in figures.
    pub const fn name(self) -> &'static str {
        self.described().0
    }
}

/// A metric of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Acknowledged transactions per second.
    Throughput,
    /// The median latency in milliseconds.
    LatencyP50,
    /// The 99th percentile of latency in milliseconds.
    LatencyP99,
    /// Refused calls, in percent of the calls that were acknowledged or refused.
    Refused,
    /// Checkpoints taken while the workload ran.
    Snapshots,
    /// Bytes of frames per acknowledged transaction.
    BytesPerTransaction,
    /// Bytes of frames per replayed transaction, without read-only transactions.
    BytesPerRecord,
    /// Bytes of frames per record outside procedures' arguments and tables' changes, from
    /// `hyades log stat`.
    OverheadPerRecord,
    /// Bytes written to the devices, in MB/s.
    DeviceRate,
    /// Replayed transactions per second, without the population.
    ReplayRate,
    /// Replay time in seconds, without the population.
    ReplaySeconds,
    /// Replay threads: a single thread where the order of a stream is the only order.
    ReplayThreads,
    /// Log bytes replayed, in MB/s.
    ReplayBandwidth,
    /// The time added to the replay threads by reading the log, in percent.
    ReadingShare,
    /// Log bytes for each second in which a replay thread read or waited for the log, in MB/s.
    ReadingRate,
    /// Rows of the checkpoint loaded by recovery, per second.
    ImageRate,
    /// Bytes of the checkpoint loaded by recovery, in MB/s.
    ImageBandwidth,
    /// Bytes of checkpoint and log over the whole time of recovery, in MB/s.
    WholeBandwidth,
    /// Worker time per transaction in microseconds.
    WorkerTime,
    /// Time of the workers in a part, per transaction, in microseconds.
    TimePart(TimePart),
    /// The time of the workers in the first parts over that in the second.
    TimeRatio(&'static [TimePart], &'static [TimePart]),
    /// Worker threads.
    Workers,
    /// Processors busy with the workers.
    WorkerProcessors,
    /// Processors busy with all threads but the workers.
    OtherProcessors,
    /// Transactions per second of the whole run, until the last standby shows all of them.
    CopiedRate,
    /// The same transactions per second of processor time of primary and standbys.
    CopiedPerProcessor,
    /// Acknowledged transactions per second of processor time of all threads.
    PerProcessor,
    /// The mean age of the state that a standby shows, in milliseconds.
    StandbyAge,
    /// The time after the last acknowledgement until all standbys show it, in milliseconds.
    CatchUp,
    /// Conflicts per acknowledged transaction.
    Conflicts,
    /// Rows per second of the ended scans, beside the transactions.
    ScanRate,
    /// Failed scans: scans with an error.
    ScansFailed,
    /// The share of reads with a version in memory.
    HitRate,
    /// The share of reads faster than nearly all reads of the data component.
    FastReads,
    /// The share of writes faster than the median of an operation applied to the data component.
    FastWrites,
    /// The mean read of a transaction component in microseconds.
    ReadTime,
    /// The mean read of a data component in microseconds.
    DataGetTime,
    /// The share of the workers' time for the collection of versions, in percent.
    CollectingShare,
    /// Transactions over the longest chain of transactions that wait for each other at replay.
    Parallelism,
    /// Nanoseconds of the LSN vectors of a transaction, alone.
    VectorTime,
    /// Nanoseconds of a fold of a vector.
    FoldTime,
    /// Nanoseconds of a comparison of vectors.
    CompareTime,
    /// Nanoseconds of the encoding of a record's vector.
    EncodeTime,
}

impl Metric {
    /// The metric's name and unit.
    pub fn label(self) -> &'static str {
        match self {
            Metric::Throughput => "acknowledged transactions / s",
            Metric::LatencyP50 => "median latency (ms)",
            Metric::LatencyP99 => "99th percentile latency (ms)",
            Metric::Refused => "refused calls (%)",
            Metric::Snapshots => "snapshots taken beside the run",
            Metric::BytesPerTransaction => "log bytes / transaction",
            Metric::BytesPerRecord => "log bytes / record",
            Metric::OverheadPerRecord => "log bytes / record beside its contents",
            Metric::DeviceRate => "written to all devices (MB/s)",
            Metric::ReplayRate => "replayed transactions / s",
            Metric::ReplaySeconds => "replay of the log (s)",
            Metric::ReplayThreads => "threads that replay",
            Metric::ReplayBandwidth => "log replayed (MB/s)",
            Metric::ReadingShare => "reading the log, added to replay (%)",
            Metric::ReadingRate => "log read by a waiting thread (MB/s)",
            Metric::ImageRate => "rows loaded from the checkpoint / s",
            Metric::ImageBandwidth => "checkpoint loaded (MB/s)",
            Metric::WholeBandwidth => "checkpoint and log recovered (MB/s)",
            Metric::WorkerTime => "worker time / transaction (\u{b5}s)",
            Metric::TimePart(_) => "time of the workers / transaction (\u{b5}s)",
            Metric::TimeRatio(..) => "time of some parts over that of others",
            Metric::Workers => "workers",
            Metric::WorkerProcessors => "processors busy with the workers",
            Metric::OtherProcessors => "processors busy with other threads than the workers",
            Metric::CopiedRate => "transactions / s on all copies",
            Metric::CopiedPerProcessor => "transactions on all copies / processor second",
            Metric::PerProcessor => "transactions / processor second",
            Metric::StandbyAge => "age of a standby's state (ms)",
            Metric::CatchUp => "until the standbys show the last transaction (ms)",
            Metric::Conflicts => "conflicts / transaction",
            Metric::ScanRate => "rows scanned / s",
            Metric::ScansFailed => "scans that failed",
            Metric::HitRate => "share of reads that find a version",
            Metric::FastReads => "share of fast reads",
            Metric::FastWrites => "share of fast writes",
            Metric::ReadTime => "mean read (\u{b5}s)",
            Metric::DataGetTime => "mean read of the data component (\u{b5}s)",
            Metric::CollectingShare => "share of time for collection (%)",
            Metric::Parallelism => "transactions / longest chain",
            Metric::VectorTime => "time of vectors / transaction (ns)",
            Metric::FoldTime => "time of a fold (ns)",
            Metric::CompareTime => "time of a comparison (ns)",
            Metric::EncodeTime => "time of an encoding (ns)",
        }
    }

    /// Reads the metric from a run's JSON object; none where the metric does not apply.
    pub fn of(self, run: &Value) -> Option<f64> {
        let number = |path: &str| run.pointer(path).and_then(Value::as_f64);
        let value = match self {
            Metric::Throughput => number("/acknowledged_per_s")?,
            Metric::LatencyP50 => number("/latency_us/p50")? / 1e3,
            Metric::LatencyP99 => number("/latency_us/p99")? / 1e3,
            Metric::Refused => refused_percent(run)?,
            Metric::Snapshots => number("/checkpoints/taken")?,
            Metric::BytesPerTransaction => number("/log_bytes_per_transaction")?,
            Metric::BytesPerRecord => number("/recovery/bytes")? / number("/recovery/records")?,
            Metric::OverheadPerRecord => overhead_per_record(run)?,
            Metric::DeviceRate => number("/device_bytes")? / number("/seconds")? / 1e6,
            Metric::ReplayRate => number("/recovery/records_per_s")?,
            Metric::ReplaySeconds => replay_seconds(run)?,
            Metric::ReplayThreads => {
                let most = if replays_in_order(run) { 1.0 } else { f64::INFINITY };
                number("/recovery/threads")?.min(most)
            }
            Metric::ReplayBandwidth => number("/recovery/bytes")? / replay_seconds(run)? / 1e6,
            Metric::ReadingShare => {
                let reading = |key: &str| number(&format!("/recovery/reading/{key}"));
                100.0 * reading("wait_seconds")? / reading("replaying_seconds")?
            }
            Metric::ReadingRate => {
                number("/recovery/bytes")? / number("/recovery/reading/wait_seconds")? / 1e6
            }
            Metric::ImageRate => {
                number("/recovery/image_rows")? / number("/recovery/image_seconds")?
            }
            Metric::ImageBandwidth => {
                number("/recovery/image_bytes")? / number("/recovery/image_seconds")? / 1e6
            }
            Metric::WholeBandwidth => {
                let bytes = number("/recovery/bytes")? + number("/recovery/image_bytes")?;
                bytes / number("/recovery/seconds")? / 1e6
            }
            // Measured processor time, if any, because processor time excludes other processes.
            Metric::WorkerTime => number("/worker_cpu_us")
                .or_else(|| Some(number("/workers")? * 1e6 / number("/acknowledged_per_s")?))?,
            Metric::TimePart(part) => time(run, &[part])?,
            Metric::TimeRatio(parts, others) => time(run, parts)? / time(run, others)?,
            Metric::Workers => number("/workers")?,
            Metric::WorkerProcessors => number("/busy_processors/workers")?,
            Metric::OtherProcessors => number("/busy_processors/others")?,
            Metric::CopiedRate => number("/replicated/copied_per_s")?,
            Metric::CopiedPerProcessor => {
                number("/replicated/transactions")? / number("/replicated/processor_seconds")?
            }
            Metric::PerProcessor => number("/acknowledged_per_s")? / busy_processors(run)?,
            Metric::StandbyAge => number("/replicated/age_ms")?,
            Metric::CatchUp => number("/replicated/catch_up_ms")?,
            Metric::Conflicts => number("/aborts")? / number("/acknowledged")?,
            Metric::ScanRate => number("/scans/rows_per_s")?,
            Metric::ScansFailed => number("/scans/failed")?,
            Metric::HitRate => number("/cache/hit_rate")?,
            Metric::FastReads => number("/observed/fast_reads")?,
            Metric::FastWrites => number("/observed/fast_writes")?,
            Metric::ReadTime => number("/observed/reads/mean_us")?,
            Metric::DataGetTime => number("/observed/dc_gets/mean_us")?,
            Metric::CollectingShare => 100.0 * number("/observed/collecting_share")?,
            Metric::Parallelism => last_incarnation(run)?.pointer("/parallelism")?.as_f64()?,
            Metric::VectorTime => number("/vectors/transaction_ns")?,
            Metric::FoldTime => number("/vectors/fold_ns")?,
            Metric::CompareTime => number("/vectors/compare_ns")?,
            Metric::EncodeTime => number("/vectors/encode_ns")?,
        };
        value.is_finite().then_some(value)
    }
}

/// Refused calls, in percent of the calls that were acknowledged or refused.
fn refused_percent(run: &Value) -> Option<f64> {
    let refused = run.pointer("/posted/refused")?.as_f64()?;
    Some(100.0 * refused / (refused + run.get("acknowledged")?.as_f64()?))
}

/// The time of the replay without the population, in seconds.
fn replay_seconds(run: &Value) -> Option<f64> {
    let number = |key| run.get("recovery")?.get(key)?.as_f64();
    Some(number("seconds")? - number("image_seconds")?)
}

/// The time of the workers in some parts, per transaction, in microseconds. None where more than
/// half of the attempts were interrupted: long attempts are interrupted most, so the others say
/// little.
fn time(run: &Value, parts: &[TimePart]) -> Option<f64> {
    let attempts = |kind| run.pointer(kind).and_then(Value::as_f64);
    if attempts("/phases/interrupted")? > attempts("/phases/attempts")? {
        return None;
    }
    parts.iter().map(|part| run.pointer(part.described().1)?.as_f64()).sum()
}

/// Bytes of frames per record of the run's own incarnation, outside of their contents.
fn overhead_per_record(run: &Value) -> Option<f64> {
    let own = last_incarnation(run)?;
    let counted = |path: &str| own.pointer(path).and_then(Value::as_f64);
    Some(counted("/contents/overhead_bytes")? / counted("/records")?)
}

/// The processors that were busy with a run's process.
pub(crate) fn busy_processors(run: &Value) -> Option<f64> {
    let busy = |threads| run.pointer("/busy_processors")?.get(threads)?.as_f64();
    Some(busy("workers")? + busy("others")?)
}

/// Whether the only order of a run's log records is the order of the stream. Then a single thread
/// replays the log, whatever number of threads the run was given.
fn replays_in_order(run: &Value) -> bool {
    run["protocol"] == "serial" && run["record"] == "command"
}

/// The incarnation of the run itself; the incarnation before is the population's.
pub(crate) fn last_incarnation(run: &Value) -> Option<&Value> {
    run.pointer("/log/incarnations")?.as_array()?.last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nulls_and_nothing_acknowledged_give_none() {
        let run = json!({"workers": 2, "acknowledged_per_s": 0.0, "recovery": {"seconds": null}});
        assert_eq!(Metric::WorkerTime.of(&run), None);
        assert_eq!(Metric::ReplaySeconds.of(&run), None);
        assert_eq!(Metric::Throughput.of(&run), Some(0.0));
    }

    #[test]
    fn one_order_is_replayed_by_one_thread() {
        let run = |protocol: &str, record: &str, threads: u32| {
            let recovery = json!({ "threads": threads });
            let run = json!({"protocol": protocol, "record": record, "recovery": recovery});
            Metric::ReplayThreads.of(&run)
        };
        assert_eq!(run("serial", "command", 4), Some(1.0));
        assert_eq!(run("serial", "data", 4), Some(4.0));
        assert_eq!(run("taurus", "command", 4), Some(4.0));
        assert_eq!(run("taurus", "command", 1), Some(1.0));
    }

    #[test]
    fn busy_processors_are_read_by_threads() {
        let run = json!({"busy_processors": {"workers": 1.5, "others": 0.5}, "workers": 2,
            "recovery": {"bytes": 4e6, "reading": {"wait_seconds": 0.5}}});
        assert_eq!(Metric::WorkerProcessors.of(&run), Some(1.5));
        assert_eq!(Metric::PerProcessor.of(&run), None);
        let faster = json!({"busy_processors": {"workers": 1.5, "others": 0.5},
            "acknowledged_per_s": 10.0});
        assert_eq!(Metric::PerProcessor.of(&faster), Some(5.0));
        assert_eq!(Metric::OtherProcessors.of(&run), Some(0.5));
        assert_eq!(Metric::Workers.of(&run), Some(2.0));
        assert_eq!(Metric::ReadingRate.of(&run), Some(8.0));
        assert_eq!(Metric::OtherProcessors.of(&json!({"workers": 2})), None);
    }

    #[test]
    fn parts_of_time_are_summed() {
        use TimePart::{Buffer, Index, Logic, Place};
        let run = |us: Value, interrupted: u64| {
            json!({"phases": {"us": us, "driver_us": 1.0, "idle_us": 1.0, "attempts": 50,
                "interrupted": interrupted}})
        };
        let us = json!({"logic": 1.0, "index": 2.0, "place": 0.5, "buffer": 0.5});
        let ratio = Metric::TimeRatio(&[Place, Buffer], &[Logic, Index]);
        assert_eq!(Metric::TimePart(Index).of(&run(us.clone(), 50)), Some(2.0));
        assert_eq!(ratio.of(&run(us.clone(), 50)), Some(1.0 / 3.0));
        assert_eq!(ratio.of(&run(us, 51)), None);
        assert_eq!(ratio.of(&run(json!({"logic": 1.0}), 0)), None);
    }

    #[test]
    fn refused_calls_are_a_share_of_the_calls() {
        let run = json!({"acknowledged": 300, "posted": {"limit": 5000, "refused": 100},
            "checkpoints": {"taken": 3}});
        assert_eq!(Metric::Refused.of(&run), Some(25.0));
        assert_eq!(Metric::Snapshots.of(&run), Some(3.0));
        assert_eq!(Metric::Refused.of(&json!({"acknowledged": 300})), None);
    }

    #[test]
    fn figures_have_the_units_of_their_labels() {
        let run = json!({"workers": 2, "acknowledged_per_s": 1e6, "latency_us": {"p50": 1500.0},
            "device_bytes": 8e6, "seconds": 2.0,
            "recovery": {"seconds": 3.0, "image_seconds": 1.0, "bytes": 4e6, "records": 1000}});
        assert_eq!(Metric::WorkerTime.of(&run), Some(2.0));
        assert_eq!(Metric::LatencyP50.of(&run), Some(1.5));
        assert_eq!(Metric::DeviceRate.of(&run), Some(4.0));
        assert_eq!(Metric::ReplayBandwidth.of(&run), Some(2.0));
        assert_eq!(Metric::BytesPerRecord.of(&run), Some(4000.0));
        assert_eq!(Metric::ImageRate.of(&run), None);
        let reading = json!({"wait_seconds": 0.5, "replaying_seconds": 2.0});
        let run = json!({ "recovery": { "reading": reading } });
        assert_eq!(Metric::ReadingShare.of(&run), Some(25.0));
        let reading = json!({"wait_seconds": 0.5, "replaying_seconds": 0.0});
        let run = json!({ "recovery": { "reading": reading } });
        assert_eq!(Metric::ReadingShare.of(&run), None);
        let recovery = json!({"image_rows": 6, "image_bytes": 4e6, "image_seconds": 2.0});
        let run = json!({ "recovery": recovery });
        assert_eq!(Metric::ImageRate.of(&run), Some(3.0));
        assert_eq!(Metric::ImageBandwidth.of(&run), Some(2.0));
        let recovery = json!({"bytes": 6e6, "image_bytes": 2e6, "seconds": 4.0});
        assert_eq!(Metric::WholeBandwidth.of(&json!({ "recovery": recovery })), Some(2.0));
        let contents = json!({"contents": {"overhead_bytes": 60}, "records": 4});
        let run = json!({"log": {"incarnations": [{}, contents]}});
        assert_eq!(Metric::OverheadPerRecord.of(&run), Some(15.0));
        let run = json!({"vectors": {"fold_ns": 3.5, "transaction_ns": 20.0}});
        assert_eq!(Metric::FoldTime.of(&run), Some(3.5));
        assert_eq!(Metric::VectorTime.of(&run), Some(20.0));
        let copies = json!({"transactions": 30, "processor_seconds": 1.5, "copied_per_s": 9e4,
            "age_ms": 20.0, "catch_up_ms": null});
        let run = json!({ "replicated": copies });
        assert_eq!(Metric::CopiedRate.of(&run), Some(9e4));
        assert_eq!(Metric::CopiedPerProcessor.of(&run), Some(20.0));
        assert_eq!(Metric::StandbyAge.of(&run), Some(20.0));
        assert_eq!(Metric::CatchUp.of(&run), None);
    }
}
