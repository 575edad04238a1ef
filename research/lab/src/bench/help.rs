//! The text below the options in the help of `hyades-lab bench`: choices that depend on each other.

/// Protocols and their records, and devices.
pub const CHOICES: &str = "\
Protocols (--protocol), and the records that each can log (--record):
  none           no log: the baseline                    nothing
  serial         one stream                              data, command, adaptive
  taurus         parallel streams, LSN vectors           data, command, adaptive
  taurus-2016    parallel streams, predecessor lists     data, command, adaptive
  poplar         parallel streams, sequence numbers      data
                 that order RAW and WAW only
  silo-r         parallel streams, group commit by epoch data
  plover         parallel streams, rows partitioned      data
                 over them
  gsn            parallel streams, sequence numbers      data
                 that order all dependencies
  physiological  one stream, before- and after-images    data
  arrival        parallel streams, calls logged before   command, always
                 they run; under partitioned alone

Records: data, the changed rows; command, the procedure and its arguments;
adaptive, one of the two, chosen for each transaction.

Concurrency controls (--concurrency): silo (optimistic), no-wait (two-phase
locking that aborts instead of waiting) and wait-die (two-phase locking that
waits for younger transactions) run under all but arrival; tictoc (optimistic,
with timestamps) under none, serial, taurus, taurus-2016 and silo-r; hekaton
(multi-version) under none, serial, taurus and silo-r; timestamp-order
(multi-version) under none, serial and taurus; partitioned (the transactions of
a partition one after the other) under none, serial, taurus, physiological and
arrival. Under hekaton --isolation snapshot does without serializability. auto,
the default, takes hekaton for that, no-wait for --patience, partitioned for
arrival, --partitions and --sites, otherwise silo.

Devices (--device); each log directory is a separate device:
  file                     files, with fsync
  memory                   shared memory: survives the process, not the machine
  throttled:bandwidth=8MB/s,latency=100us,depth=1
                           a device of this speed, over file
  nvm:factor=2             NVM: mapped files, whose cache lines are flushed and
                           take this many times as long as in memory, over
                           memory, or over file on a DAX file system;
                           first=200ns,line=5ns state the time of memory for a
                           line and for each further one, or it is measured
  striped:unit=64KiB       each file striped over all directories, over file
The last three can be put over another device, which is named last, as in
striped:over=throttled:bandwidth=8MB/s

Engines (--engine), for ycsb: memory, as above. deuteronomy, a transaction
component over a data component (--dc), whose data may be larger than memory:
transactions of 4 accesses to keys, of which 84 % read (Levandoski et al., CIDR
2015). It logs data in streams with LSN vectors and orders transactions by
timestamps; options of other protocols and controls do not apply. With
--scan-length each transaction writes a key and scans that many. redb, fjall,
lmdb and rocksdb (in builds with these features) run the same transactions on a
store by itself, serializable and durable: those in flight share commits.
hash-map is what to compare reads with: no transactions, no log, no ranges.

Times are seconds, or have a unit: 500ms, 40us, 2m. Sizes: 4096, 64KiB, 8MB.
How to choose: docs/choosing.md. Errors in the protocols as published:
docs/protocols.";

#[cfg(test)]
mod tests {
    use super::CHOICES;

    #[test]
    fn every_protocol_is_listed_with_the_records_that_the_engine_takes() {
        for protocol in hyades_schemes::all_protocols() {
            let name = protocol.name();
            let mut lines = CHOICES.lines().map(str::trim);
            let line = lines.find(|line| line.split_whitespace().next() == Some(name));
            let line = line.unwrap_or_else(|| panic!("{name} is not listed"));
            let commands = line.ends_with("data, command, adaptive");
            let is_logged = protocol != hyades::Protocol::None;
            let expected = protocol.takes_commands() && protocol.takes_data() && is_logged;
            assert_eq!(commands, expected, "{line}");
        }
    }

    #[test]
    fn every_device_that_is_named_can_be_chosen() {
        // A line that is indented further continues the line above.
        let listed = CHOICES.lines().filter_map(|line| line.strip_prefix("  "));
        let words = listed.filter(|line| !line.starts_with(' ')).map(str::split_whitespace);
        let named: Vec<&str> =
            words.filter_map(|mut line| line.next()).skip_while(|word| *word != "file").collect();
        assert_eq!(named.len(), 5, "{named:?}");
        for word in named.iter().chain(&["striped:over=throttled:bandwidth=8MB/s"]) {
            let chosen = word.parse::<crate::device::DeviceChoice>();
            assert!(chosen.is_ok(), "{word}: {chosen:?}");
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        assert!(CHOICES.lines().all(|line| line.chars().count() <= 80), "{CHOICES}");
    }
}
