//! Any cut of the input gives the same requests, and no input panics.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { arguments: 1 << 20, argument_bytes: 512 << 20 };

type Requests = Vec<Vec<Vec<u8>>>;

/// Parses pieces of input as a connection does: complete requests are taken off.
fn parse(pieces: &[&[u8]]) -> (Requests, Option<ProtocolError>) {
    let (mut parser, mut input, mut requests) = (Parser::default(), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let taken = match parser.next(&input, &LIMITS) {
                Err(error) => return (requests, Some(error)),
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Nothing(length)) => length,
                Ok(Parsed::Request(length)) => {
                    let arguments = parser.arguments(&input);
                    requests.push(arguments.iter().map(<[u8]>::to_vec).collect());
                    length
                }
            };
            input.drain(..taken);
        }
    }
    (requests, None)
}

fn fails(input: &[u8]) -> String {
    parse(&[input]).1.expect("an error").0
}

#[test]
fn requests_of_both_kinds() {
    let input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nping\r\n\r\n*-1\r\n*1\r\n$0\r\n\r\nset \"a b\" c\n";
    let expected: [&[&[u8]]; 4] = [&[b"GET", b"k"], &[b"ping"], &[b""], &[b"set", b"a b", b"c"]];
    let (requests, error) = parse(&[input]);
    assert_eq!(requests, expected);
    assert_eq!(error, None);
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(parse(&bytes), (requests, None));
}

/// A client with a single large request, asleep since, costs no memory.
#[test]
fn the_room_of_a_large_request_is_freed() {
    let kept = |count: usize| {
        let mut input = format!("*{count}\r\n").into_bytes();
        (0..count).for_each(|_| input.extend_from_slice(b"$1\r\nx\r\n"));
        let mut parser = Parser::default();
        assert_eq!(parser.next(&input, &LIMITS), Ok(Parsed::Request(input.len())));
        assert_eq!(parser.arguments(&input).len(), count);
        parser.free_unused();
        assert_eq!(parser.next(b"*1\r\n$4\r\nPING\r\n", &LIMITS), Ok(Parsed::Request(14)));
        assert_eq!(parser.arguments(b"*1\r\n$4\r\nPING\r\n").get(0), b"PING");
        parser.ranges.capacity()
    };
    assert_eq!(kept(MOST_KEPT), MOST_KEPT);
    assert!(kept(MOST_KEPT + 1) <= 8);
    assert!(kept(100_000) <= 8);
}

#[test]
fn what_is_wrong_is_said() {
    assert_eq!(fails(b"*3000000000\r\n"), "invalid multibulk length");
    assert_eq!(fails(b"*x\r\n"), "invalid multibulk length");
    assert_eq!(fails(b"*1\r\nfoo\r\n"), "expected '$', got 'f'");
    assert_eq!(fails(b"*1\r\n$-10\r\n"), "invalid bulk length");
    assert_eq!(fails(b"*1\r\n$2000000000\r\n"), "invalid bulk length");
    assert_eq!(fails(b"*1\r\n$blabla\r\n"), "invalid bulk length");
    assert_eq!(fails(b"set \"\"\"k\"\"\" v\r\n"), "unbalanced quotes in request");
    let long = vec![b'A'; LONGEST_LINE + 1];
    assert_eq!(fails(&long), "too big inline request");
    let with = |first: &[u8]| [first, &long].concat();
    assert_eq!(fails(&with(b"*")), "too big mbulk count string");
    assert_eq!(fails(&with(b"*1\r\n$")), "too big bulk count string");
    assert_eq!(fails(&with(b"\0")), "too big inline request");
}

#[test]
fn a_large_argument_says_how_much_it_needs() {
    let mut parser = Parser::default();
    let input = b"*1\r\n$100\r\nabc";
    assert_eq!(parser.next(input, &LIMITS), Ok(Parsed::Incomplete));
    assert_eq!(parser.wanted(input.len()), 99);
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let argument = proptest::collection::vec(any::<u8>(), 0..20);
    let bulks = proptest::collection::vec(argument, 0..5).prop_map(|arguments| {
        let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            out.extend_from_slice(&argument);
            out.extend_from_slice(b"\r\n");
        }
        out
    });
    let noise = proptest::collection::vec(
        prop_oneof![any::<u8>(), Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1')],
        0..12,
    );
    prop_oneof![4 => bulks, 1 => "[ a-z\"']{0,9}\r?\n".prop_map(String::into_bytes), 1 => noise]
}

proptest! {
    #[test]
    fn any_cut_gives_the_same(
        requests in proptest::collection::vec(request(), 1..8),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let input = requests.concat();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let (mut pieces, mut from) = (Vec::new(), 0);
        for to in cuts.into_iter().chain([input.len()]) {
            pieces.push(&input[from..to]);
            from = to;
        }
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        let whole = parse(&[&input]);
        prop_assert_eq!(&parse(&pieces), &whole);
        prop_assert_eq!(&parse(&bytes), &whole);
    }
}
