use super::crc64::crc64;
use super::*;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

fn restored(payload: &[u8]) -> Result<Restored, BadPayload> {
    restore(payload, MOST_BYTES)
}

/// A payload with a right footer.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut payload = [body, &VERSION.to_le_bytes()].concat();
    payload.extend(crc64(&payload).to_le_bytes());
    payload
}

fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        3 => (-5_000i64..5_000).prop_map(|n| n.to_string().into_bytes()),
        3 => vec(any::<u8>(), 0..80),
        1 => (0usize..20_000, any::<u8>()).prop_map(|(n, byte)| vec![byte; n]),
        1 => vec(any::<u8>(), 4_000..4_200),
    ]
}

fn value() -> impl Strategy<Value = Restored> {
    let score = any::<f64>().prop_filter("a number", |number| !number.is_nan());
    let score = prop_oneof![score, (-9i32..9).prop_map(f64::from), Just(f64::INFINITY)];
    prop_oneof![
        element().prop_map(Restored::String),
        vec(element(), 1..200).prop_map(Restored::List),
        btree_set(element(), 1..200).prop_map(|all| Restored::Set(all.into_iter().collect())),
        btree_set(-70_000i64..70_000, 1..600).prop_map(|all| {
            Restored::Set(all.into_iter().map(|n| n.to_string().into_bytes()).collect())
        }),
        btree_map(element(), element(), 1..140)
            .prop_map(|all| Restored::Hash(all.into_iter().flat_map(|(a, b)| [a, b]).collect())),
        btree_map(element(), (element(), prop::option::of(1i64..1 << 46)), 1..140).prop_map(
            |all| {
                let all = all.into_iter().map(|(name, (value, at))| (name, value, at));
                Restored::TimedHash(all.collect())
            }
        ),
        btree_map(element(), score, 1..140).prop_map(|all| {
            Restored::SortedSet(all.into_iter().map(|(name, score)| (score + 0.0, name)).collect())
        }),
    ]
}

fn slices(all: &[Vec<u8>]) -> Vec<&[u8]> {
    all.iter().map(Vec::as_slice).collect()
}

/// Sorts sets, timed hashes and sorted sets: the order is not part of the value.
fn sorted(mut value: Restored) -> Restored {
    match &mut value {
        Restored::Set(all) => all.sort(),
        Restored::TimedHash(all) => all.sort(),
        Restored::SortedSet(all) => {
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        _ => {}
    }
    value
}

fn dumped(value: &Restored) -> Vec<u8> {
    match value {
        Restored::String(text) => string(text),
        Restored::List(all) => list(&slices(all)),
        Restored::Set(all) => set(&slices(all)),
        Restored::Hash(all) => hash(&slices(all)),
        Restored::TimedHash(all) => {
            let all: Vec<_> = all.iter().map(|(a, b, at)| (&a[..], &b[..], *at)).collect();
            timed_hash(&all)
        }
        Restored::SortedSet(all) => {
            let all: Vec<_> = all.iter().map(|pair| (pair.0, &pair.1[..])).collect();
            sorted_set(&all)
        }
        Restored::Stream(image) => stream(image),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_dumped_is_restored(value in value()) {
        let value = sorted(value);
        prop_assert_eq!(restored(&dumped(&value)).map(sorted), Ok(value));
    }

    /// Changed bytes under a right checksum, and payloads cut off: a value, or an error.
    #[test]
    fn what_is_corrupt_is_refused_or_a_value(
        value in value(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let payload = dumped(&value);
        let body = &payload[..payload.len() - FOOTER];
        let mut changed = body.to_vec();
        for (at, byte) in &changes {
            changed[at.index(body.len())] = *byte;
            // Heads say more than the rest.
            changed[at.index(body.len().min(24))] = *byte;
            let _ = restored(&sealed(&changed));
        }
        let _ = restored(&sealed(&changed[..cut.index(body.len())]));
        // Without the right checksum nothing is looked at.
        let mut broken = payload.clone();
        let (at, byte) = &changes[0];
        broken[at.index(payload.len())] ^= byte | 1;
        prop_assert_eq!(restored(&broken), Err(BadPayload::Footer));
    }

    /// Each encoding meets any bytes.
    #[test]
    fn any_bytes_are_refused_or_a_value(kind in 0u8..28, bytes in vec(any::<u8>(), 0..60)) {
        let _ = restored(&sealed(&[&[kind][..], &bytes].concat()));
        // As the string of the elements.
        let held = [&[kind, bytes.len() as u8][..], &bytes].concat();
        let _ = restored(&sealed(&held));
        let mut all = 0;
        let take = |_| { all += 1; Some(()) };
        let _ = ziplist::read_zipmap(&bytes, take);
        prop_assert!(all <= bytes.len());
    }
}

fn read(body: &[u8]) -> Result<Restored, BadPayload> {
    restored(&sealed(body))
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// A ziplist of elements with written-out heads and bytes.
fn ziplist_of(elements: &[&[u8]]) -> Vec<u8> {
    let (mut body, mut before, mut last) = (Vec::new(), 0u8, 10);
    for element in elements {
        last = 10 + body.len();
        body.push(before);
        body.extend_from_slice(element);
        before = element.len() as u8 + 1;
    }
    let mut all = (body.len() as u32 + 11).to_le_bytes().to_vec();
    all.extend((last as u32).to_le_bytes());
    all.extend((elements.len() as u16).to_le_bytes());
    all.extend(body);
    all.push(0xff);
    all
}

/// With a type, and as a string.
fn held(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, bytes.len() as u8][..], bytes].concat()
}

#[test]
fn encodings_of_earlier_versions() {
    let list = ziplist_of(&[
        b"\x01a",
        b"\xf1",
        b"\xfd",
        b"\xfe\xff",
        b"\xc0\x00\x80",
        b"\xf0\xff\xff\x7f",
        b"\xd0\x00\x00\x00\x80",
        b"\xe0\x01\0\0\0\0\0\0\x80",
        b"\x40\x02bc",
    ]);
    let shown = texts(&[
        "a",
        "0",
        "12",
        "-1",
        "-32768",
        "8388607",
        "-2147483648",
        "-9223372036854775807",
        "bc",
    ]);
    assert_eq!(read(&held(kinds::LIST_ZIPLIST, &list)), Ok(Restored::List(shown.clone())));
    let quick = [&[kinds::LIST_QUICKLIST, 1][..], &[list.len() as u8], &list].concat();
    assert_eq!(read(&quick), Ok(Restored::List(shown)));
    let pairs = ziplist_of(&[b"\x01a", b"\xf3", b"\x01b", b"\x03inf"]);
    let hash = Restored::Hash(texts(&["a", "2", "b", "inf"]));
    assert_eq!(read(&held(kinds::HASH_ZIPLIST, &pairs)), Ok(hash));
    let ranked = vec![(2.0, b"a".to_vec()), (f64::INFINITY, b"b".to_vec())];
    let ranked = Restored::SortedSet(ranked);
    assert_eq!(read(&held(kinds::SORTED_SET_ZIPLIST, &pairs)), Ok(ranked.clone()));
    assert_eq!(read(b"\x03\x02\x01a\x012\x01b\xfe"), Ok(ranked));
    let zipmap = b"\x02\x01a\x01\x022..\x01b\x03\x00inf\xff";
    assert_eq!(
        read(&held(kinds::HASH_ZIPMAP, zipmap)),
        Ok(Restored::Hash(texts(&["a", "2", "b", "inf"])))
    );
    assert_eq!(read(b"\x01\x02\x01a\xc0\xff"), Ok(Restored::List(texts(&["a", "-1"]))));
    assert_eq!(read(b"\x12\x01\x01\x02xy"), Ok(Restored::List(texts(&["xy"]))));
}

#[test]
fn what_is_no_value() {
    assert_eq!(restored(b""), Err(BadPayload::Footer));
    let mut later = b"\0\x01a\x0d\0".to_vec();
    later.extend(crc64(&later).to_le_bytes());
    assert_eq!(restored(&later), Err(BadPayload::Footer));
    assert_eq!(read(b"\x07\x00"), Err(BadPayload::Module));
    for bad in [
        &b"\x63\x00"[..],
        b"\x00\x01ab",                               // bytes behind it
        b"\x00\x02a",                                // too short
        b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff", // longer than all that is
        b"\x00\xc3\x02\x80\xff\xff\xff\xff\x00a",    // would be 4 GiB
        b"\x01\x00",                                 // empty
        b"\x01\x80\xff\xff\xff\xff\x01a",            // more than follow
        b"\x02\x02\x01a\x01a",                       // twice the same member
        b"\x04\x02\x01a\x01b\x01a\x01c",
        b"\x05\x01\x01a\0\0\0\0\0\0\xf8\x7f", // not a number
        b"\x03\x01\x01a\xfd",
        b"\x12\x01\x03\x02xy", // a node of another form
    ] {
        let error = read(bad).unwrap_err();
        assert!(matches!(error, BadPayload::Format | BadPayload::TooLarge), "{bad:?}");
    }
}

/// Payloads as written by Redis 7.0.
#[test]
fn payloads_of_redis() {
    assert_eq!(string(b"7")[..4], *b"\x00\xc0\x07\x0a");
    assert_eq!(string(b"300")[..5], *b"\x00\xc1\x2c\x01\x0a");
    assert_eq!(list(&[b"a", b"1"])[..5], *b"\x12\x01\x02\x0c\x0c");
    assert_eq!(set(&[b"2", b"1"])[..14], *b"\x0b\x0c\x02\0\0\0\x02\0\0\0\x01\0\x02\0");
}

/// The four types of hashes with expiring fields, byte by byte as in Redis 7.4 and its candidates.
#[test]
fn hashes_of_redis_7_4_keep_the_times_of_their_fields() {
    let time = 0x0102_0304_0506i64;
    let mut listpack = listpack::ListpackWriter::default();
    for element in ["a", "1", &time.to_string(), "b", "2", "0"] {
        listpack.push(element.as_bytes());
    }
    let listpack = listpack.finish();
    let packed = [&[listpack.len() as u8], &listpack[..]].concat();
    let first = time.to_le_bytes();
    let long = [&[0x81][..], &time.to_be_bytes()].concat();
    let bodies = [
        [&[22, 2][..], &long, b"\x01a\x011\x00\x01b\x012"].concat(),
        [&[23][..], &packed].concat(),
        [&[24][..], &first, b"\x02\x01\x01a\x011\x00\x01b\x012"].concat(),
        [&[25][..], &first, &packed].concat(),
    ];
    let field = |name: &str, value: &str, at| (name.into(), value.into(), at);
    let hash = Restored::TimedHash(vec![field("a", "1", Some(time)), field("b", "2", None)]);
    for body in bodies {
        assert_eq!(restored(&sealed(&body)), Ok(hash.clone()), "type {}", body[0]);
    }
    // A written hash with times is of this version, and no other value is.
    let payload = timed_hash(&[(b"a", b"1", Some(time))]);
    assert_eq!(payload[payload.len() - 10..payload.len() - 8], [12, 0]);
    assert_eq!(string(b"a")[3..5], [10, 0]);
    let late = [&[22, 1, 0x81][..], &(1u64 << 48).to_be_bytes(), b"\x01a\x011"].concat();
    assert_eq!(restored(&sealed(&late)), Err(BadPayload::Format));
}

/// Lengths beyond any value end the file: the position does not overflow.
#[test]
fn lengths_beyond_any_memory_are_refused() {
    let length = |length: u64| [&[0x81][..], &length.to_be_bytes()].concat();
    for bytes in [
        [&b"\x01\x01k"[..], &length(u64::MAX / 2), &length(u64::MAX - 8)].concat(),
        [&b"\x00"[..], &length(u64::MAX)].concat(),
        [&b"\xfa"[..], &length(u64::MAX - 20)].concat(),
    ] {
        let file = [b"REDIS0010", &bytes[..]].concat();
        for length in [file.len() as u64, u64::MAX] {
            let mut reader = file::FileReader::new(&file[..], length).unwrap();
            assert!(reader.next().is_err(), "{bytes:?}");
        }
    }
}
