//! The head of a request for a page: the requested page, or the reason of a refusal.
//!
//! A browser may be led to this port under a foreign name ("DNS rebinding"): its page could then
//! read the data here. So the requested name has to belong to this machine, or, if other machines
//! are served, be an address, which leads nowhere else. Pages of a word or of numbers alone are
//! served under any name: monitoring programs have a name for this machine.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// Most bytes of a head.
pub const MOST_HEAD_BYTES: usize = 8 << 10;

/// Most lines of a head.
const MOST_HEADERS: usize = 64;

/// A requested page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The path, without a query.
    pub path: String,
    /// Only the head of the answer is wanted.
    pub is_head: bool,
}

/// The reason to answer without a page: a status of HTTP, and a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u16, pub &'static str);

/// The request did not arrive in time.
pub const TOO_SLOW: Refusal = Refusal(408, "the request has not arrived in time");

/// The client has closed its side before its request was whole.
pub const CUT_OFF: Refusal = Refusal(400, "the request ends too early");

/// The page does not exist.
pub const NO_SUCH_PAGE: Refusal =
    Refusal(404, "there is no such page: there are /, /metrics, /status.json, /livez, /readyz");

const TOO_LARGE: Refusal = Refusal(431, "the head of the request has more than 8 KiB or 64 lines");
const MALFORMED: Refusal = Refusal(400, "this is no request of HTTP/1.0 or HTTP/1.1");
const NOT_ONE_HOST: Refusal = Refusal(400, "the request does not name one host");
const FOREIGN_HOST: Refusal = Refusal(
    403,
    "this is served under the names of this machine alone, such as localhost, and under addresses \
     where metrics-bind serves other machines",
);
const OTHER_METHOD: Refusal = Refusal(405, "the methods are GET and HEAD");

/// Pages that other machines may request under any name.
const PLAIN_PAGES: [&str; 4] = ["/metrics", "/healthz", "/livez", "/readyz"];

/// Reads a request from the received bytes; `None` if the head is not complete yet. Other machines
/// are served if `is_open`.
pub fn read(input: &[u8], is_open: bool) -> Result<Option<PageRequest>, Refusal> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(input) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if input.len() >= MOST_HEAD_BYTES => return Err(TOO_LARGE),
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        Err(_) => return Err(MALFORMED),
    }
    let target = request.path.unwrap_or("");
    let path = target.split('?').next().unwrap_or("");
    let is_served = |host: &[u8]| {
        is_local(host) || is_open && (is_address(host) || PLAIN_PAGES.contains(&path))
    };
    let hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    match (&hosts.map(|header| header.value).collect::<Vec<_>>()[..], request.version) {
        ([host], _) if is_served(host) => {}
        ([_], _) => return Err(FOREIGN_HOST),
        // Before 1.1 no host need be named; browsers always name the host.
        ([], Some(0)) => {}
        _ => return Err(NOT_ONE_HOST),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(OTHER_METHOD),
    };
    Ok(Some(PageRequest { path: path.to_string(), is_head }))
}

/// Whether a `Host` is a name or an address of this machine alone, with any port: a tunnel may end
/// at another port.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let is_port = |text: &str| text.parse::<u16>().is_ok() || text.is_empty();
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let is_right = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        let address = address.parse::<Ipv6Addr>();
        return is_right && address.is_ok_and(|address| address.to_canonical().is_loopback());
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_loopback = name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    let is_named = name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case("localhost");
    is_port(port) && (is_loopback || is_named)
}

/// Whether a `Host` is an address, with any port.
fn is_address(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let is_alone = |host: &str| host.parse::<Ipv4Addr>().is_ok();
    let in_brackets = |host: &str| {
        let own = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        own.is_some_and(|own| own.parse::<Ipv6Addr>().is_ok())
    };
    host.parse::<SocketAddr>().is_ok() || is_alone(host) || in_brackets(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(input: &[u8]) -> Result<Option<PageRequest>, Refusal> {
        super::read(input, false)
    }

    fn refused(text: &str) -> u16 {
        read(text.as_bytes()).unwrap_err().0
    }

    fn path(text: &str) -> (String, bool) {
        let request = read(text.as_bytes()).unwrap().expect("it is whole");
        (request.path, request.is_head)
    }

    #[test]
    fn get_and_head_of_a_path() {
        assert_eq!(path("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"), ("/".into(), false));
        let query = "HEAD /metrics?a=1 HTTP/1.1\r\nhOST:127.0.0.1:1\r\nA: b\r\n\r\nmore";
        assert_eq!(path(query), ("/metrics".into(), true));
        assert_eq!(path("GET /a HTTP/1.0\n\n"), ("/a".into(), false));
        assert_eq!(read(b""), Ok(None));
        let whole = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn other_methods_versions_and_garbage_are_refused() {
        assert_eq!(refused("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
        assert_eq!(refused("get / HTTP/1.1\r\nHost: localhost\r\n\r\n"), 405);
        assert_eq!(refused("PRI * HTTP/2.0\r\n\r\n"), 400);
        assert_eq!(refused("*1\r\n$4\r\nPING\r\n"), 400);
        assert_eq!(refused("\u{16}\u{3}\u{1}"), 400);
        assert_eq!(refused("GET / HTTP/1.1\r\n: a\r\n\r\n"), 400);
    }

    #[test]
    fn a_head_has_8_kib_and_64_lines_at_most() {
        let start = "GET / HTTP/1.1\r\nHost: localhost\r\nA: ";
        let head = |bytes: usize| format!("{start}{}", "a".repeat(bytes - start.len()));
        assert_eq!(read(head(MOST_HEAD_BYTES - 1).as_bytes()), Ok(None));
        assert_eq!(refused(&head(MOST_HEAD_BYTES)), 431);
        let whole = format!("{}\r\n\r\n", head(MOST_HEAD_BYTES - 4));
        assert_eq!((whole.len(), path(&whole).0), (MOST_HEAD_BYTES, "/".into()));
        let lines = |n: usize| {
            format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(n - 1))
        };
        assert_eq!(path(&lines(MOST_HEADERS)).0, "/");
        assert_eq!(refused(&lines(MOST_HEADERS + 1)), 431);
    }

    #[test]
    fn only_names_of_this_machine_are_served() {
        let local = [
            "localhost",
            "LocalHost:80",
            "localhost.",
            "127.0.0.1",
            "127.9.9.9:7379",
            "[::1]",
            "[::1]:7379",
            "[::ffff:127.0.0.1]",
            "localhost:",
        ];
        for host in local {
            assert!(is_local(host.as_bytes()), "{host}");
        }
        let foreign = [
            "",
            ":80",
            "example.org",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "0.0.0.0",
            "10.0.0.1",
            "[::]",
            "[::1",
            "[::1]x",
            "::1",
            "localhost:port",
            "localhost:65536",
            "localhost:1:2",
            "127.1",
            "2130706433",
            "xlocalhost",
            "localhost..",
            "user@localhost",
            "[fe80::1]",
            "[localhost]",
        ];
        for host in foreign {
            assert!(!is_local(host.as_bytes()), "{host}");
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(refused(&text), 403, "{host}");
        }
        assert_eq!(refused("GET / HTTP/1.1\r\n\r\n"), 400);
        let twice = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n";
        assert_eq!(refused(twice), 400);
        assert_eq!(refused("GET / HTTP/1.0\r\nHost: example.org\r\n\r\n"), 403);
    }

    #[test]
    fn where_others_are_served_an_address_is_a_host_and_plain_pages_have_any_name() {
        let status = |path: &str, host: &str| {
            let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            super::read(text.as_bytes(), true).err().map_or(200, |refusal| refusal.0)
        };
        for host in ["10.0.0.1", "10.0.0.1:7379", "[fd00::7]", "[fd00::7]:7379", "localhost"] {
            assert_eq!((status("/", host), status("/metrics", host)), (200, 200), "{host}");
        }
        for host in ["example.org", "10.0.0.1.example.org", "hyades:7379", "[fd00::7", "10.1", ""] {
            assert_eq!((status("/", host), status("/status.json?a", host)), (403, 403), "{host}");
            for path in PLAIN_PAGES {
                assert_eq!(status(path, host), 200, "{path} {host}");
            }
            assert_eq!(status("/metrics?a=1", host), 200);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let _ = super::read(&bytes, true);
            let _ = (is_local(&bytes), is_address(&bytes));
        }
    }
}
