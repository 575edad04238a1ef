//! LSN vectors of up to three streams, with frames that are one position long.

/// Maximum number of streams in a model.
pub const LANES: usize = 3;

/// One position for each stream.
pub type Vector = [u8; LANES];

/// The vector of zeros.
pub const BOTTOM: Vector = [0; LANES];

/// The maximum of each component.
pub fn join<const N: usize>(a: [u8; N], b: [u8; N]) -> [u8; N] {
    std::array::from_fn(|lane| a[lane].max(b[lane]))
}

/// Whether each component of `lower` is at most the component of `upper`.
pub fn covers<const N: usize>(upper: [u8; N], lower: [u8; N]) -> bool {
    (0..N).all(|lane| lower[lane] <= upper[lane])
}

/// Formats the first `streams` components.
pub fn show(vector: Vector, streams: usize) -> String {
    let lanes: Vec<String> = vector[..streams].iter().map(u8::to_string).collect();
    format!("({})", lanes.join(","))
}

/// Formats numbers counted from zero as names counted from one: "T1 T3".
pub fn names(prefix: &str, numbers: impl IntoIterator<Item = u8>) -> String {
    let names: Vec<String> =
        numbers.into_iter().map(|number| format!("{prefix}{}", number + 1)).collect();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}
