//! What stands below the options in the help of `hyades bench`: the choices that depend on one another.

/// Protocols, and what may be logged under each.
pub const CHOICES: &str = "\
Logging protocols (--protocol), and what may be logged under each (--record):
  none           no log: the yardstick of the others        (nothing is logged)
  serial         one stream                                 data, command, adaptive
  taurus         parallel streams, LSN vectors              data, command, adaptive
  taurus-2016    parallel streams, lists of predecessors    data, command, adaptive
  poplar         parallel streams; numbers that follow      data
                 reads-from and overwrites only
  silo-r         parallel streams; answers by epochs        data
  plover         parallel streams, each with a part of      data
                 the rows
  gsn            parallel streams, a global sequence        data
                 number
  physiological  one stream, row by row, before- and        data
                 after-images
Each is sound under both concurrency controls (--concurrency): silo, which is optimistic, and
no-wait, two-phase locking that aborts instead of waiting.

Records: data, the changed rows; command, the procedure and its arguments; adaptive, whichever is
better for each transaction.

Devices (--device), of which each log directory is one:
  file                                  files, synced
  memory                                shared memory: survives the process, not the machine
  throttled:bandwidth=8MB/s,latency=100us,depth=1
                                        of a given speed, over file
  nvm:factor=2,line=80ns                memory that is slow to flush a cache line, over memory
  striped:unit=64KiB                    every file over all directories, over file
The last three take another device below them, written last, as in
striped:over=throttled:bandwidth=8MB/s

Times are seconds, or have a unit: 500ms, 40us, 2m. Sizes: 4096, 64KiB, 8MB.
Which to choose, and what goes wrong in each protocol as published: docs/choosing.md, docs/protocols.md.";

#[cfg(test)]
mod tests {
    use super::CHOICES;

    #[test]
    fn every_protocol_is_listed_with_the_records_that_the_engine_takes() {
        for protocol in hyades::Protocol::all() {
            let name = protocol.name();
            let mut lines = CHOICES.lines().map(str::trim);
            let line = lines.find(|line| line.split_whitespace().next() == Some(name));
            let line = line.unwrap_or_else(|| panic!("{name} is not listed"));
            let commands = line.ends_with("data, command, adaptive");
            let expected = protocol.takes_commands() && protocol != hyades::Protocol::None;
            assert_eq!(commands, expected, "{line}");
        }
    }

    #[test]
    fn every_device_that_is_named_can_be_chosen() {
        let devices = CHOICES
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .skip_while(|line| line.split_whitespace().next() != Some("file"));
        let words = devices.filter_map(|line| line.split_whitespace().next());
        let named: Vec<&str> = words.filter(|word| !["of"].contains(word)).collect();
        assert_eq!(named.len(), 5, "{named:?}");
        for word in named.iter().chain(&["striped:over=throttled:bandwidth=8MB/s"]) {
            let chosen = word.parse::<crate::device::DeviceChoice>();
            assert!(chosen.is_ok(), "{word}: {chosen:?}");
        }
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        assert!(CHOICES.lines().all(|line| line.chars().count() <= 100), "{CHOICES}");
    }
}
