//! The device of a log, as given on the command line: `file`,
//! `throttled:bandwidth=8MB/s,latency=100us`, `striped:over=throttled:bandwidth=8MB/s`.

use hyades_cli::place::DeviceKind;
use hyades_cli::units;
use hyades_platform::device::{
    Device, LineFlush, MountedDevice, Nvm, NvmDevice, StripedDevice, Throttle, ThrottledDevice,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Default stripe unit: bytes of a striped file for one directory before the next.
const UNIT: u64 = 64 << 10;
/// Default latency of NVM relative to the machine's memory: that of Poplar, section 6.
const NVM_FACTOR: f64 = 2.0;

/// A device, or several layers of devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceChoice {
    /// The parsed text.
    text: String,
    layer: Layer,
}

#[derive(Clone, Debug, PartialEq)]
enum Layer {
    Plain(DeviceKind),
    Throttled(Throttle, Box<Layer>),
    Nvm(NvmChoice, Box<Layer>),
    Striped(u64, Box<Layer>),
}

/// How slow non-volatile memory is; times not given are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NvmChoice {
    factor: f64,
    first_ns: Option<f64>,
    line_ns: Option<f64>,
}

impl NvmChoice {
    /// With the times of the machine where none are given, measured once in the process's life.
    fn measured(&self) -> io::Result<Nvm> {
        let nvm = match (self.first_ns, self.line_ns) {
            (Some(first_ns), Some(line_ns)) => Nvm { factor: self.factor, first_ns, line_ns },
            _ => Nvm::measured(self.factor)?,
        };
        let first_ns = self.first_ns.unwrap_or(nvm.first_ns);
        Ok(Nvm { first_ns, line_ns: self.line_ns.unwrap_or(nvm.line_ns), ..nvm })
    }
}

/// What a run on non-volatile memory was: how lines were flushed, and the times of the machine's
/// memory, of which the emulated memory takes `factor` times as much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NvmReport {
    /// The instruction that flushes a line.
    pub instruction: String,
    /// The latency relative to the machine's memory.
    pub factor: f64,
    /// Nanoseconds for a line and its fence.
    pub first_line_ns: f64,
    /// Nanoseconds for each further line before the fence.
    pub line_ns: f64,
}

impl NvmReport {
    /// In a line of text.
    pub fn text(&self) -> String {
        format!(
            "{}: {:.0} ns for a line and {:.1} ns for each further one, times {}",
            self.instruction, self.first_line_ns, self.line_ns, self.factor
        )
    }
}

impl Layer {
    /// A device for a single directory.
    fn one(&self) -> Arc<dyn Device> {
        match self {
            Layer::Plain(kind) => kind.open(),
            Layer::Throttled(throttle, over) => {
                Arc::new(ThrottledDevice::new(over.one(), *throttle))
            }
            Layer::Nvm(nvm, over) => {
                let nvm = nvm.measured().expect("`check` refuses other machines");
                Arc::new(NvmDevice::new(over.one(), nvm))
            }
            // `from_str` allows striping as the outermost layer only, handled by `open_with`.
            Layer::Striped(_, over) => over.one(),
        }
    }

    fn over(&self) -> Option<&Layer> {
        match self {
            Layer::Plain(_) => None,
            Layer::Throttled(_, over) | Layer::Nvm(_, over) | Layer::Striped(_, over) => Some(over),
        }
    }

    fn lowest(&self) -> DeviceKind {
        match (self, self.over()) {
            (Layer::Plain(kind), _) => *kind,
            (_, Some(over)) => over.lowest(),
            (_, None) => unreachable!("every other layer is over another"),
        }
    }
}

impl DeviceChoice {
    /// Opens the device for the directories. Each directory is a separate device.
    #[cfg(test)]
    pub fn open(&self, dirs: &[PathBuf]) -> Arc<dyn Device> {
        self.open_with(dirs, None)
    }

    /// As `open`, but the last directory is on the device `last`, if given.
    pub fn open_with(&self, dirs: &[PathBuf], last: Option<&DeviceChoice>) -> Arc<dyn Device> {
        let each = |layer: &Layer| -> Vec<(PathBuf, Arc<dyn Device>)> {
            dirs.iter().map(|dir| (dir.clone(), layer.one())).collect()
        };
        if let (Some(last), [.., dir]) = (last, dirs) {
            let mut mounts = each(&self.layer);
            mounts.pop();
            mounts.push((dir.clone(), last.layer.one()));
            return Arc::new(MountedDevice::new(mounts));
        }
        match &self.layer {
            layer if dirs.is_empty() => layer.one(),
            Layer::Striped(unit, over) => Arc::new(StripedDevice::new(each(over), *unit)),
            Layer::Plain(kind) => kind.open(),
            layer => Arc::new(MountedDevice::new(each(layer))),
        }
    }

    /// The same device without throttling and NVM emulation. The files are in the same places.
    pub fn unhindered(&self) -> DeviceChoice {
        let lowest = self.lowest();
        let plain = Layer::Plain(lowest);
        match &self.layer {
            Layer::Striped(unit, _) => DeviceChoice {
                text: format!("striped:unit={unit},over={}", lowest.word()),
                layer: Layer::Striped(*unit, Box::new(plain)),
            },
            _ => DeviceChoice { text: lowest.word().to_string(), layer: plain },
        }
    }

    /// Whether each file is spread over all directories. Then the log is given the first only.
    pub fn is_striped(&self) -> bool {
        matches!(self.layer, Layer::Striped(..))
    }

    /// The memory on which the log is, if on NVM.
    ///
    /// # Errors
    /// This machine has no instruction to flush a cache line.
    pub fn nvm(&self) -> io::Result<Option<NvmReport>> {
        let is = |layer: &Layer| match layer {
            Layer::Nvm(nvm, _) => Some(*nvm),
            _ => None,
        };
        let Some(choice) = self.layers().find_map(is) else { return Ok(None) };
        let instruction = LineFlush::of_machine()?.name().to_string();
        let Nvm { factor, first_ns, line_ns } = choice.measured()?;
        Ok(Some(NvmReport { instruction, factor, first_line_ns: first_ns, line_ns }))
    }

    /// Whether the log is on NVM, flushed by cache lines.
    pub fn is_nvm(&self) -> bool {
        self.layers().any(|layer| matches!(layer, Layer::Nvm(..)))
    }

    /// Whether the bandwidth or latency is limited.
    pub fn is_throttled(&self) -> bool {
        self.layers().any(|layer| matches!(layer, Layer::Throttled(..)))
    }

    fn layers(&self) -> impl Iterator<Item = &Layer> {
        std::iter::successors(Some(&self.layer), |layer| layer.over())
    }

    /// The device below all layers.
    pub fn lowest(&self) -> DeviceKind {
        self.layer.lowest()
    }

    /// The parsed text.
    pub fn word(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> String {
        choice.text
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let layer = layer(text)?;
        let mut below = std::iter::successors(layer.over(), |layer| layer.over());
        if below.any(|layer| matches!(layer, Layer::Striped(..))) {
            return Err(format!(
                "{text:?} puts a device over striped ones: write striped first, as in \
                 striped:over=throttled:bandwidth=8MB/s"
            ));
        }
        Ok(DeviceChoice { text: text.to_string(), layer })
    }
}

/// The settings of a device, `name=value`, removed by `take` one by one. All text after `over=` is
/// the device below.
struct Parts<'t> {
    kind: &'t str,
    settings: Vec<(&'t str, &'t str)>,
    over: Option<&'t str>,
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> Result<Self, String> {
        let (kind, mut rest) = text.split_once(':').unwrap_or((text, ""));
        let mut parts = Parts { kind, settings: Vec::new(), over: None };
        while !rest.is_empty() {
            if let Some(over) = rest.strip_prefix("over=") {
                parts.over = Some(over);
                break;
            }
            let (setting, after) = rest.split_once(',').unwrap_or((rest, ""));
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                format!("{setting:?} is not a setting: write name=value, as in depth=1")
            })?;
            parts.settings.push((name, value));
            rest = after;
        }
        Ok(parts)
    }

    /// Removes a setting and parses the value.
    fn take<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let Some(at) = self.settings.iter().position(|(n, _)| *n == name) else { return Ok(None) };
        let (_, value) = self.settings.remove(at);
        read(value).map(Some).map_err(|why| format!("{name}={value}: {why}"))
    }

    /// The device below; `otherwise` is the default. An error if a setting is left over.
    fn over(self, names: &str, otherwise: &str) -> Result<Box<Layer>, String> {
        match self.settings.first() {
            Some((name, _)) => Err(format!(
                "{name:?} is unknown or repeated: a {} device takes {names} and over, each once",
                self.kind
            )),
            None => layer(self.over.unwrap_or(otherwise)).map(Box::new),
        }
    }
}

fn bandwidth(text: &str) -> Result<f64, String> {
    match units::size(text.strip_suffix("/s").unwrap_or(text))? {
        0 => Err("the bandwidth must be at least a byte per second".to_string()),
        rate => Ok(rate as f64),
    }
}

fn depth(text: &str) -> Result<usize, String> {
    let depth = text.parse().ok().filter(|depth| (1..=1024).contains(depth));
    depth.ok_or_else(|| "the queue depth must be 1 to 1024".to_string())
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor: &f64| (1.0..=1000.0).contains(factor));
    factor.ok_or_else(|| "the factor must be 1 to 1000".to_string())
}

/// Reads a duration in nanoseconds; the unit `ns` is allowed too.
fn nanoseconds(text: &str) -> Result<f64, String> {
    match text.strip_suffix("ns").map(str::parse) {
        Some(Ok(ns)) if (0.0..=1e9).contains(&ns) => Ok(ns),
        Some(_) => Err("give a number of nanoseconds, up to a second, as in 80ns".to_string()),
        None => units::seconds(text).map(|seconds| seconds * 1e9),
    }
}

fn unit(text: &str) -> Result<u64, String> {
    let unit = units::size(text)?;
    let fits = unit.is_multiple_of(4096) && (4096..=1 << 30).contains(&unit);
    fits.then_some(unit)
        .ok_or_else(|| "the unit must be a multiple of 4KiB, up to 1GiB".to_string())
}

fn layer(text: &str) -> Result<Layer, String> {
    let mut parts = Parts::of(text)?;
    match parts.kind {
        "throttled" => {
            let throttle = Throttle {
                bytes_per_s: parts.take("bandwidth", bandwidth)?,
                latency_ns: (parts.take("latency", units::seconds)?.unwrap_or(0.0) * 1e9) as u64,
                depth: parts.take("depth", depth)?.unwrap_or(1),
            };
            if throttle.bytes_per_s.is_none() && throttle.latency_ns == 0 {
                return Err(format!(
                    "{text:?} throttles nothing: give a bandwidth or a latency, as in \
                     throttled:bandwidth=8MB/s,latency=100us,depth=1"
                ));
            }
            Ok(Layer::Throttled(throttle, parts.over("bandwidth, latency, depth", "file")?))
        }
        "nvm" => {
            let nvm = NvmChoice {
                factor: parts.take("factor", factor)?.unwrap_or(NVM_FACTOR),
                first_ns: parts.take("first", nanoseconds)?,
                line_ns: parts.take("line", nanoseconds)?,
            };
            let over = parts.over("factor, first, line", "memory")?;
            match *over {
                Layer::Plain(_) => Ok(Layer::Nvm(nvm, over)),
                _ => Err(format!(
                    "{text:?}: nvm maps files, so it is over file or memory: write it last, as in \
                     throttled:latency=1us,over=nvm"
                )),
            }
        }
        "striped" => {
            let unit = parts.take("unit", unit)?.unwrap_or(UNIT);
            Ok(Layer::Striped(unit, parts.over("unit", "file")?))
        }
        "file" | "memory" if text.contains(':') => {
            Err(format!("{text:?}: a {} device has no settings", parts.kind))
        }
        "file" => Ok(Layer::Plain(DeviceKind::File)),
        "memory" => Ok(Layer::Plain(DeviceKind::Memory)),
        other => {
            Err(format!("{other:?} is not a device: choose file, memory, throttled, nvm, striped"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Layer {
        text.parse::<DeviceChoice>().unwrap_or_else(|why| panic!("{text}: {why}")).layer
    }

    #[test]
    fn devices_are_read_as_they_are_written() {
        let file = || Box::new(Layer::Plain(DeviceKind::File));
        let memory = || Box::new(Layer::Plain(DeviceKind::Memory));
        assert_eq!(parsed("file"), *file());
        let throttle = Throttle { bytes_per_s: Some(8e6), latency_ns: 100_000, depth: 1 };
        assert_eq!(
            parsed("throttled:bandwidth=8MB/s,latency=100us,depth=1"),
            Layer::Throttled(throttle, file())
        );
        let deep = Throttle { bytes_per_s: None, latency_ns: 5_000_000, depth: 32 };
        assert_eq!(
            parsed("striped:unit=4KiB,over=throttled:depth=32,latency=5ms,over=memory"),
            Layer::Striped(4096, Box::new(Layer::Throttled(deep, memory())))
        );
        assert_eq!(parsed("striped"), Layer::Striped(UNIT, file()));
        let nvm = NvmChoice { factor: 2.0, first_ns: None, line_ns: None };
        assert_eq!(parsed("nvm"), Layer::Nvm(nvm, memory()));
        let slow = NvmChoice { factor: 3.5, first_ns: Some(1000.0), line_ns: Some(80.0) };
        let text = "nvm:factor=3.5,first=1us,line=80ns,over=file";
        assert_eq!(parsed(text), Layer::Nvm(slow, file()));
        let stated = text.parse::<DeviceChoice>().unwrap().nvm();
        if let Ok(stated) = stated.map(Option::unwrap) {
            assert_eq!((stated.factor, stated.first_line_ns, stated.line_ns), (3.5, 1000.0, 80.0));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_a_sentence() {
        for (text, says) in [
            ("tape", "choose file, memory, throttled, nvm, striped"),
            ("file:depth=1", "no settings"),
            ("throttled", "give a bandwidth or a latency"),
            ("throttled:bandwidth=8MB/s,colour=red", "bandwidth, latency, depth and over"),
            ("throttled:bandwidth=8MB/s,bandwidth=9MB/s", "each once"),
            ("throttled:bandwidth=fast", "is not a size"),
            ("throttled:bandwidth=0", "at least a byte"),
            ("throttled:latency=1us,depth=0", "1 to 1024"),
            ("throttled:8MB/s", "write name=value"),
            ("throttled:latency=1us,over=tape", "is not a device"),
            ("throttled:latency=1us,over=striped", "write striped first"),
            ("striped:over=striped", "write striped first"),
            ("striped:unit=1000", "a multiple of 4KiB"),
            ("nvm:factor=0.5", "1 to 1000"),
            ("nvm:speed=3", "factor, first, line and over"),
            ("nvm:over=throttled:latency=1us", "over file or memory"),
        ] {
            let why = text.parse::<DeviceChoice>().expect_err(text);
            assert!(why.contains(says), "{text}: {why}");
        }
    }

    #[test]
    fn every_directory_is_a_device_of_its_own() {
        let temporary = tempfile::tempdir().unwrap();
        let dirs: Vec<_> = (0..3).map(|n| temporary.path().join(format!("{n}"))).collect();
        let open = |text: &str| text.parse::<DeviceChoice>().unwrap().open(&dirs);
        let striped = open("striped:unit=4KiB,over=memory");
        striped.create_dir(&dirs[0]).unwrap();
        striped.create(&dirs[0].join("f"), 3 * 4096).unwrap();
        assert!(dirs.iter().all(|dir| dir.join("f").metadata().unwrap().len() == 4096));
        // Each directory is throttled on its own.
        let throttled = open("throttled:bandwidth=1KB/s,over=memory");
        let write = |at: usize| {
            hyades_platform::clock::simulate(Some(1_000_000_000));
            throttled.write_small(&dirs[at].join("s"), &[1; 1000]).unwrap();
            hyades_platform::clock::monotonic_ns() / 1_000_000_000
        };
        assert_eq!([write(0), write(1), write(1)], [2, 2, 3]);
        hyades_platform::clock::simulate(None);
    }
}
