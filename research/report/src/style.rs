//! Colours and markers: a protocol has the same colour in all figures, a kind of record the same
//! fill and line.

/// The shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A disc.
    Circle,
    /// A square.
    Square,
    /// An upright triangle.
    Triangle,
    /// A square on its corner.
    Diamond,
}

/// The look of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The colour, as in SVG. Legible on white and on near-black.
    pub colour: &'static str,
    /// The marker.
    pub marker: Marker,
    /// Whether the marker is filled.
    pub filled: bool,
    /// Whether the line is dashed.
    pub dashed: bool,
}

/// Colours and markers by the beginning of a label; the first match counts. The palette of Okabe
/// and Ito is distinguishable with colour blindness; greys are for baselines.
const COLOURS: &[(&str, &str, Marker)] = &[
    ("no logging", "currentColor", Marker::Diamond),
    ("serial raid", "#a08070", Marker::Triangle),
    ("serial", "#8a8a8a", Marker::Square),
    ("taurus 2016", "#56b4e9", Marker::Triangle),
    ("taurus", "#0f7fc4", Marker::Circle),
    ("poplar", "#009e73", Marker::Diamond),
    ("silo-r", "#d55e00", Marker::Square),
    ("plover", "#cc79a7", Marker::Triangle),
    ("gsn", "#e69f00", Marker::Diamond),
    ("physiological", "#9a6324", Marker::Square),
    ("on arrival", "#6a5acd", Marker::Circle),
];

/// Colours of parts, and of series without a protocol, in order.
const OTHERS: &[&str] =
    &["#0f7fc4", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8a8a8a", "#56b4e9"];

/// The look of the series with the label `label`, the `at`-th of the figure.
pub fn of(label: &str, at: usize) -> Style {
    let lower = label.to_lowercase();
    let known = COLOURS.iter().find(|(name, ..)| lower.starts_with(name));
    let (colour, marker) = match known {
        Some((_, colour, marker)) => (*colour, *marker),
        None => {
            let markers = [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond];
            (OTHERS[at % OTHERS.len()], markers[at % markers.len()])
        }
    };
    // A variant of a protocol, named after a comma, has the protocol's colour and another marker.
    let variants = [Marker::Square, Marker::Triangle, Marker::Diamond];
    let is_variant = known.is_some() && lower.contains(", ");
    let marker = if is_variant { variants[at % variants.len()] } else { marker };
    // Command records are hollow and dashed, data records are solid.
    let command = lower.contains("command");
    Style { colour, marker, filled: !command, dashed: command }
}

/// The colour of the `at`-th part of a whole.
pub fn part(at: usize) -> &'static str {
    OTHERS[at % OTHERS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_keeps_its_colour_and_records_differ_in_shape() {
        let data = of("Taurus data", 0);
        let command = of("Taurus command", 5);
        assert_eq!(data.colour, command.colour);
        assert_ne!((data.filled, data.dashed), (command.filled, command.dashed));
        assert_ne!(of("Taurus 2016 data", 0).colour, data.colour);
        assert_ne!(of("Serial RAID-0 data", 0).colour, of("Serial data", 0).colour);
    }

    #[test]
    fn variants_differ_from_their_protocol_and_from_each_other() {
        let plain = of("Taurus command", 0);
        let (one, two) = (of("Taurus command, --simd off", 1), of("Taurus command, fixed", 2));
        assert_eq!((plain.colour, plain.dashed), (one.colour, one.dashed));
        assert!(plain.marker != one.marker && one.marker != two.marker);
    }

    #[test]
    fn no_two_protocols_share_a_colour() {
        for (at, (name, colour, _)) in COLOURS.iter().enumerate() {
            for (other, same, _) in &COLOURS[at + 1..] {
                assert_ne!(colour, same, "{name} and {other}");
            }
        }
    }
}
