//! Describes this machine for the head of a report.

use std::path::Path;

/// The number of processors for this process.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Processors, memory and system, in one line.
pub fn describe() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string())
    };
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let kilobytes = field(&read("/proc/meminfo"), "MemTotal");
    let memory = kilobytes
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map_or(String::new(), |kb| format!(", {:.0} GiB of memory", kb / (1 << 20) as f64));
    // Without the name of its build.
    let system = read("/proc/sys/kernel/osrelease");
    let system = system.split('-').next().unwrap_or_default().to_string();
    format!(
        "{} cores of {}{memory}, Linux {}",
        cores(),
        processor.unwrap_or_else(|| "an unnamed processor".to_string()),
        system.trim()
    )
}

/// The physical cores for this process, and their nominal clock in GHz: from the processor's name,
/// from the kernel, or else the present clock, possibly not the nominal clock.
pub fn processors() -> (u32, Option<f64>) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let base = read("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency");
    let base = base.trim().parse::<f64>().ok().map(|kilohertz| kilohertz / 1e6);
    let usable = u32::try_from(cores()).unwrap_or(u32::MAX);
    let cores = physical(&info).map_or(usable, |cores| cores.min(usable));
    (cores, named_clock(&info).or(base).or_else(|| present_clock(&info)))
}

/// The values of a field of /proc/cpuinfo, one for each thread of a core.
fn fields<'a>(info: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.filter(move |(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// The number of distinct cores; none if the cores are not listed.
fn physical(info: &str) -> Option<u32> {
    let both = fields(info, "physical id").zip(fields(info, "core id"));
    let distinct: std::collections::BTreeSet<_> = both.collect();
    u32::try_from(distinct.len()).ok().filter(|cores| *cores > 0)
}

fn named_clock(info: &str) -> Option<f64> {
    let (_, clock) = fields(info, "model name").next()?.split_once(" @ ")?;
    clock.trim().strip_suffix("GHz")?.trim().parse().ok()
}

fn present_clock(info: &str) -> Option<f64> {
    let megahertz: f64 = fields(info, "cpu MHz").next()?.parse().ok()?;
    (megahertz > 0.0).then_some(megahertz / 1e3)
}

/// The file system and the device below a directory, or below the directory for temporary files:
/// `ext4 on /dev/vda1`.
pub fn device_of(dir: Option<&Path>) -> String {
    let dir = dir.map_or_else(std::env::temp_dir, Path::to_path_buf);
    // A missing directory is on the device of the nearest directory above.
    let there = dir.ancestors().find_map(|dir| dir.canonicalize().ok());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    there
        .and_then(|dir| mounted(&mounts, &dir))
        .unwrap_or_else(|| "an unknown file system".to_string())
}

/// The file system and the device of the mount with a directory. Of several mounts at a place the
/// last hides the rest.
fn mounted(mounts: &str, dir: &Path) -> Option<String> {
    let mounts = mounts.lines().filter_map(|line| {
        let (place, device) = line.split_once(" - ")?;
        let place = place.split(' ').nth(4)?.replace("\\040", " ");
        let mut device = device.split(' ');
        let (kind, source) = (device.next()?, device.next()?);
        dir.starts_with(&place).then(|| (place.len(), format!("{kind} on {source}")))
    });
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, device)| device)
}

/// Today, as in 2026-11-21.
pub fn date() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = since.map_or(0, |since| since.as_secs() / 86_400);
    let (year, month, day) = civil(days as i64);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The Gregorian date this many days after 1 January 1970. Years are counted from March, so the
/// leap day is the last day of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_on_the_innermost_mount() {
        let mounts = "21 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
                      30 21 0:30 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw\n\
                      31 21 254:2 / /a\\040b rw - xfs /dev/vdb rw\n";
        let on = |dir: &str| mounted(mounts, Path::new(dir));
        assert_eq!(on("/tmp").as_deref(), Some("ext4 on /dev/vda1"));
        assert_eq!(on("/dev/shm/x").as_deref(), Some("tmpfs on tmpfs"));
        assert_eq!(on("/dev/shmx").as_deref(), Some("ext4 on /dev/vda1"));
        assert_eq!(on("/a b/c").as_deref(), Some("xfs on /dev/vdb"));
        assert_eq!(mounted("", Path::new("/")), None);
    }

    #[test]
    fn cores_are_counted_once_and_the_nominal_clock_comes_first() {
        let thread = |core: u32| {
            format!(
                "model name\t: Xeon @ 2.20GHz\ncpu MHz\t\t: 3100.5\nphysical id\t: 0\n\
                 core id\t\t: {core}\n\n"
            )
        };
        let info: String = [0, 0, 1, 1].map(thread).concat();
        assert_eq!(physical(&info), Some(2));
        assert_eq!(named_clock(&info), Some(2.2));
        assert_eq!(present_clock(&info), Some(3.1005));
        assert_eq!((physical(""), named_clock(""), present_clock("")), (None, None, None));
        assert!(processors().0 > 0);
    }

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }
}
