//! Entry points for tests that feed arbitrary bytes to the server. Not part of the public API.

use crate::resp::request::{Limits, Parsed, Parser};
use crate::torture::SteppedServer;

/// The results of a parser: requests, then an error or nothing, and the number of bytes taken.
type ParsedInput = (Vec<Vec<Vec<u8>>>, Option<String>, usize);

/// Parses input in pieces of this length.
fn parse(input: &[u8], piece: usize, limits: &Limits) -> ParsedInput {
    let (mut parser, mut requests, mut taken, mut given) = (Parser::default(), Vec::new(), 0, 0);
    while given < input.len() {
        given = (given + piece).min(input.len());
        loop {
            let input = &input[taken..given];
            match parser.next(input, limits) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Nothing(length)) => taken += length,
                Ok(Parsed::Request(length)) => {
                    let arguments = parser.arguments(input);
                    assert!(arguments.len() <= limits.arguments.max(input.len()));
                    requests.push(arguments.iter().map(<[u8]>::to_vec).collect());
                    taken += length;
                }
                Err(error) => return (requests, Some(error.to_string()), taken),
            }
        }
    }
    (requests, None, taken)
}

/// Parses bytes as requests, in whatever pieces: the requests and the error are the same. The first
/// byte chooses the pieces.
pub fn requests(bytes: &[u8]) {
    let Some((&how, input)) = bytes.split_first() else { return };
    for limits in [Limits::BEFORE_LOGIN, Limits { arguments: 1 << 20, argument_bytes: 1 << 29 }] {
        let whole = parse(input, usize::MAX - input.len(), &limits);
        let cut = parse(input, 1 + usize::from(how % 32), &limits);
        assert_eq!(whole, cut, "in pieces of {}", 1 + how % 32);
    }
}

/// Clients that send bytes to a server, and the server.
pub struct Fuzzed {
    server: SteppedServer,
}

impl Fuzzed {
    /// A server over a new database in this directory.
    ///
    /// # Panics
    /// The database cannot be opened.
    pub fn new(dir: &std::path::Path) -> Fuzzed {
        let builder = hyades::Database::builder().streams(1);
        let server = SteppedServer::open(builder, dir, 1, &[]).expect("a database opens");
        Fuzzed { server }
    }

    /// Sends bytes from a client, in pieces of a length given by the first byte, and disconnects.
    /// The client is served to the end, or until the client waits for something.
    ///
    /// # Panics
    /// The server has a fault.
    pub fn say(&mut self, bytes: &[u8]) {
        let Some((&how, input)) = bytes.split_first() else { return };
        let number = self.server.connect(0);
        for piece in input.chunks(1 + usize::from(how) * 4) {
            self.server.feed(number, piece);
            // Parked replies are bounded; they are freed as the log is written.
            for _ in 0..1_000 {
                self.server.drain(0).expect("the log goes on");
                self.server.output(number);
                if !self.server.has_work(number) {
                    break;
                }
                if self.server.run(number).is_paused {
                    std::thread::yield_now();
                }
            }
        }
        self.server.disconnect(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The parts of requests.
    const WORDS: &[&str] = &[
        "*1\r\n",
        "*2\r\n",
        "*3\r\n",
        "*-1\r\n",
        "*0\r\n",
        "$1\r\n",
        "$3\r\n",
        "$0\r\n",
        "a\r\n",
        "GET\r\n",
        "SET\r\n",
        "\r\n",
        "\n",
        "\r",
        "$",
        "*",
        "SET a 1\r\n",
        "GET a\r\n",
        "\"",
        "'",
        "MULTI\r\n",
        "EXEC\r\n",
        "SCAN 0\r\n",
        "HSET h f v\r\n",
        "$-1\r\n",
        "*99999999999\r\n",
        "BLPOP l 0\r\n",
        "SUBSCRIBE c\r\n",
        "HELLO 3\r\n",
        "RANDOMKEY\r\n",
        "BGSAVE\r\n",
        "RESET\r\n",
    ];

    /// Bytes that often look like requests.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..6),
        ];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 2_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn requests_do_not_depend_on_how_they_arrive(how: u8, bytes in bytes()) {
            requests(&[&[how], &bytes[..]].concat());
        }
    }

    #[test]
    fn a_server_stands_any_bytes() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut server = Fuzzed::new(dir.path());
        let config =
            ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let server = std::cell::RefCell::new(&mut server);
        let result = runner.run(&(any::<u8>(), bytes()), |(how, bytes)| {
            server.borrow_mut().say(&[&[how], &bytes[..]].concat());
            Ok(())
        });
        result.unwrap();
    }
}
