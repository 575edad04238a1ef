//! LSN vectors of up to three streams, whose frames are one position long.

/// The most streams that a model has.
pub const LANES: usize = 3;

/// One position for each stream.
pub type Vector = [u8; LANES];

/// The vector at which nothing has happened.
pub const BOTTOM: Vector = [0; LANES];

/// Lane by lane, the higher position.
pub fn join(a: Vector, b: Vector) -> Vector {
    std::array::from_fn(|lane| a[lane].max(b[lane]))
}

/// Whether no lane of `lower` is above the one of `upper`.
pub fn covers(upper: Vector, lower: Vector) -> bool {
    (0..LANES).all(|lane| lower[lane] <= upper[lane])
}

/// The first `streams` lanes, as text.
pub fn show(vector: Vector, streams: usize) -> String {
    let lanes: Vec<String> = vector[..streams].iter().map(u8::to_string).collect();
    format!("({})", lanes.join(","))
}

/// The names `number`, of things counted from zero, as "T1 T3".
pub fn names(prefix: &str, numbers: impl IntoIterator<Item = u8>) -> String {
    let names: Vec<String> =
        numbers.into_iter().map(|number| format!("{prefix}{}", number + 1)).collect();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}
