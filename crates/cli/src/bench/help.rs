//! What stands below the options in the help of `hyades bench`: the choices that depend on one another.

/// Protocols, and what may be logged under each.
pub const CHOICES: &str = "\
Protocols (--protocol), and what may be logged under each (--record):
  none           no log: the yardstick of the others     nothing
  serial         one stream                              data, command, adaptive
  taurus         parallel streams, LSN vectors           data, command, adaptive
  taurus-2016    parallel streams, predecessor lists     data, command, adaptive
  poplar         parallel streams, numbers that follow   data
                 reads-from and overwrites only
  silo-r         parallel streams, answers by epochs     data
  plover         parallel streams, a part of the rows    data
                 in each
  gsn            parallel streams, numbers that follow   data
                 every dependency
  physiological  one stream, before- and after-images    data

Records: data, the changed rows; command, the procedure and its arguments;
adaptive, whichever is better for each transaction.

Each pair above is sound under both concurrency controls (--concurrency):
silo, which is optimistic, and no-wait, two-phase locking that aborts instead
of waiting.

Devices (--device); each log directory is one:
  file                     files, synced
  memory                   shared memory: outlives the process, not the machine
  throttled:bandwidth=8MB/s,latency=100us,depth=1
                           a device of this speed, over file
  nvm:factor=2,line=80ns   memory with cache lines slow to flush, over memory
  striped:unit=64KiB       each file spread over all directories, over file
The last three take another device to stand on, written last, as in
striped:over=throttled:bandwidth=8MB/s

Times are seconds, or have a unit: 500ms, 40us, 2m. Sizes: 4096, 64KiB, 8MB.
Which to choose: docs/choosing.md. What goes wrong in each protocol as it was
published: docs/protocols.md.";

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
        // What is further in goes on with the line above.
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
