//! The same random commands on HyperLogLogs here and on `redis-server`: the replies are equal, and
//! so is each byte of the strings, sparse or dense, with the estimate in their heads. Ignored,
//! since the test needs `redis-server`:
//!
//! `HYADES_COMMANDS=200000 HYADES_SEED=1 cargo test -p hyades-server --test differential_sketches
//! -- --ignored`
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod beside;

use beside::{Pair, Said, number};

fn command(rng: &mut fastrand::Rng) -> Vec<String> {
    let key = |rng: &mut fastrand::Rng| format!("p{}", rng.u8(..4));
    let mut words: Vec<String> = Vec::new();
    let (name, keys) = match rng.u8(..40) {
        0..20 => ("PFADD", 1),
        20..26 => ("PFCOUNT", 1),
        26..28 => ("PFCOUNT", rng.usize(1..5)),
        28..32 => ("PFMERGE", rng.usize(2..5)),
        32 => ("PFDEBUG TODENSE", 1),
        33 => ("PFDEBUG GETREG", 1),
        34 | 35 => ("PFDEBUG DECODE", 1),
        36 => ("PFDEBUG ENCODING", 1),
        37 => ("DEL", 1),
        // A byte of the head, or of the registers, is replaced: mostly the string is no sketch any
        // more.
        38 if rng.u8(..8) == 0 => ("SETRANGE", 1),
        _ => ("STRLEN", 1),
    };
    words.extend(name.split(' ').map(str::to_string));
    words.extend((0..keys).map(|_| key(rng)));
    match name {
        "PFADD" => {
            // Few elements, so that the sketches stay sparse for long, or many.
            let (most, range) = if rng.bool() { (4, 300) } else { (400, 100_000_000) };
            let count = rng.u32(..most);
            words.extend((0..count).map(|_| format!("e{}", rng.u32(..range))));
        }
        "SETRANGE" => words.extend([rng.u32(..40).to_string(), "a".to_string()]),
        _ => {}
    }
    words
}

#[test]
#[ignore = "needs redis-server"]
fn strings_are_those_of_redis() {
    let (count, seed) = (number("HYADES_COMMANDS", 20_000), number("HYADES_SEED", 1));
    let mut pair = Pair::start(&[]);
    let (ours, theirs) = (&mut pair.ours, &mut pair.theirs);
    let mut rng = fastrand::Rng::with_seed(seed);
    for done in 0..count {
        if done % 2_000 == 0 {
            let most = [3_000, 0, 100, 20_000][(done / 2_000) as usize % 4];
            for client in [&mut *ours, &mut *theirs] {
                let text = format!("CONFIG SET hll-sparse-max-bytes {most}");
                assert_eq!(client.ask_text(&text), Said::Line("+OK".to_string()));
            }
        }
        let words = command(&mut rng);
        let keys = words.iter().filter(|word| word.starts_with('p'));
        let get = |key: &String| vec!["GET".to_string(), key.clone()];
        let commands: Vec<_> = [words.clone()].into_iter().chain(keys.map(get)).collect();
        ours.send(&commands);
        theirs.send(&commands);
        for asked in &commands {
            let (here, there) = (ours.read(), theirs.read());
            assert!(
                here == there,
                "seed {seed}, {done}: {asked:?} of {words:?}: {here:?} {there:?}"
            );
        }
    }
    pair.stop();
}
