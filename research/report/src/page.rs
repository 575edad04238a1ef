//! The page: a self-contained HTML file, for light and dark displays; and the same as JSON.

use crate::axis::grouped;
use crate::chart::{ENOUGH, FAR};
use crate::data::{Data, Outcome};
use crate::definition;
use crate::experiment::{Cells, Experiment, Paper, Run, Shape};
use crate::judge::{Basis, Check, Finding, Note, NoteKind, Verdict};
use crate::plan::{JUDGED, SHOWN};
use crate::plot;
use crate::scale::{Axes, Processors, Rates, Setup, Size};
use crate::svg::{draw, escape};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt::Write;

mod judged;
mod residual;

use judged::{Judged, found, reason, standing, tally, untested};

/// The head of a report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// The program and its version.
    pub program: String,
    /// Processors, memory, system.
    pub machine: String,
    /// The date, as text.
    pub date: String,
    /// The duration of all runs in seconds.
    pub seconds: f64,
    /// The sizes of runs.
    pub size: Size,
    /// The rates of this machine; none if no measurement succeeded.
    pub rates: Option<Rates>,
    /// The processors, as in the scale of devices.
    pub processors: Processors,
    /// The command line's choices for all runs.
    #[serde(default)]
    pub axes: Axes,
    /// The commit of the build; none if not known.
    pub commit: Option<String>,
    /// Placeholders in commands, and the page's text in place of each.
    pub placeholders: Vec<(String, String)>,
    /// The model's costs and residuals; none if nothing was simulated.
    pub calibration: Option<Value>,
}

impl About {
    /// The head of a report written as JSON.
    ///
    /// # Errors
    /// The JSON is not a report's.
    pub fn of_report(report: &Value) -> Result<About, String> {
        let about = report.get("about").ok_or("it has no \"about\"")?;
        serde_json::from_value(about.clone()).map_err(|error| error.to_string())
    }

    /// The set-up of this report's experiments.
    pub fn setup(&self) -> Setup {
        Setup {
            size: self.size,
            rates: self.rates.unwrap_or(Rates::TYPICAL),
            processors: self.processors,
            axes: self.axes.clone(),
        }
    }

    /// The command of a run, to be repeated by hand.
    pub fn command(&self, run: &Run) -> String {
        let words: Vec<&str> = run.words.iter().map(String::as_str).collect();
        let mut text = format!("hyades-lab {} --json", words.join(" "));
        for (word, meaning) in &self.placeholders {
            text = text.replace(word.as_str(), meaning);
        }
        if run.words.iter().any(|word| word == "LOG") {
            text += " && hyades log stat log --json";
        }
        text
    }
}

/// A report.
pub struct Page<'a> {
    /// The head of the report.
    pub about: About,
    /// The experiments.
    pub experiments: &'a [Experiment],
    /// The results of the experiments' runs.
    pub data: &'a Data,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ground:#fff;--ink:#1c1c1e;--soft:#5d5d66;\
--rule:#dcdce2;--card:#f7f7f9}\
@media(prefers-color-scheme:dark){:root{--ground:#17181b;--ink:#e4e4e8;--soft:#a2a2ac;\
--rule:#37383e;--card:#1f2024}}\
body{background:var(--ground);color:var(--ink);\
font:15px/1.5 Georgia,'Times New Roman',serif;margin:0 auto;\
max-width:1010px;padding:2rem 1.2rem 4rem}\
h1,h2,h3,table,.badge,nav,summary{font-family:Helvetica,Arial,'Liberation Sans',sans-serif}\
h1{font-size:1.9rem;margin:.2rem 0}\
h2{margin-top:3rem;border-bottom:2px solid var(--rule);padding-bottom:.3rem}\
h3{margin:2.6rem 0 .3rem;font-size:1.15rem}.soft{color:var(--soft);font-size:.9rem}\
figure{margin:1rem 0;display:flex;flex-wrap:wrap;gap:1rem 1.6rem}\
.chart{max-width:100%;height:auto}\
table{border-collapse:collapse;font-size:.84rem;width:100%}\
td,th{text-align:left;padding:.28rem .6rem .28rem 0;\
border-bottom:1px solid var(--rule);vertical-align:top}\
.badge{display:inline-block;font-size:.74rem;font-weight:bold;border-radius:3px;\
padding:.08rem .5rem;color:#fff;white-space:nowrap}\
.holds{background:#00805c}.part{background:#a06a00}.fails{background:#b8450c}\
.sim{background:#6a5acd}.none{background:#77777f}\
caption{text-align:left;font-weight:bold}\
dl{display:grid;grid-template-columns:7.5rem 1fr;gap:.35rem .8rem;margin:.6rem 0}\
dt{color:var(--soft)}dd{margin:0}\
ul.found{list-style:none;padding:0;margin:0}\
ul.found li{padding-left:1.3rem;text-indent:-1.3rem}\
code{font:12px/1.45 ui-monospace,Menlo,Consolas,monospace}\
details{margin:.5rem 0}summary{cursor:pointer;font-size:.85rem;color:var(--soft)}\
pre{background:var(--card);border:1px solid var(--rule);padding:.7rem;overflow-x:auto;\
margin:.4rem 0}\
a{color:inherit}";

/// Text as HTML, with text between backticks as code, and no line broken before a percent sign.
fn prose(text: &str) -> String {
    let text = text.replace(" %", "\u{a0}%");
    let parts = text.split('`').map(escape).enumerate();
    let tagged = |(at, part): (usize, String)| match at % 2 {
        0 => part,
        _ => format!("<code>{part}</code>"),
    };
    parts.map(tagged).collect()
}

/// A table with a title; none without rows.
fn table(title: &str, cells: &Cells) -> Option<String> {
    let row = |tag: &str, texts: &mut dyn Iterator<Item = &str>| {
        let cells: String = texts.map(|text| format!("<{tag}>{}</{tag}>", escape(text))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows = cells.rows.iter().map(|texts| row("td", &mut texts.iter().map(String::as_str)));
    let all: String =
        [row("th", &mut cells.heads.iter().copied())].into_iter().chain(rows).collect();
    let caption = escape(title);
    (!cells.rows.is_empty()).then(|| format!("<table><caption>{caption}</caption>{all}</table>\n"))
}

impl<'a> Page<'a> {
    fn judged(&self) -> Vec<Judged<'a>> {
        self.experiments.iter().map(|experiment| Judged::of(experiment, self.data)).collect()
    }

    /// The page as HTML.
    pub fn html(&self) -> String {
        let judged = self.judged();
        let mut out = String::new();
        let mut put = |text: &str| out.push_str(text);
        put("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
        put("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n");
        put("<title>Hyades: the papers' figures beside ours</title>\n<style>");
        put(STYLE);
        put("</style></head><body>\n<h1>The papers' figures beside ours</h1>\n");
        put(&untested(&judged));
        put(&self.head());
        put(&self.summary(&judged));
        for paper in Paper::ALL {
            let mut own = judged.iter().filter(|j| j.view.experiment.paper == paper).peekable();
            if own.peek().is_some() {
                put(&format!(
                    "<h2>{}</h2>\n<p class=\"soft\">{}.</p>\n",
                    escape(paper.name()),
                    escape(paper.citation())
                ));
                own.for_each(|judged| put(&self.section(judged)));
            }
        }
        put(&self.calibration());
        put("</body></html>\n");
        out
    }

    fn head(&self) -> String {
        let About { program, machine, date, seconds, size, rates, processors, .. } = &self.about;
        let rates = rates.map_or("not measured".to_string(), |rates| {
            let short = crate::axis::short;
            format!(
                "YCSB {}/s, Payment {}/s, New-Order {}/s; with commands logged on \
                 arrival, posted to sites, all of TPC-C {}/s, Voter {}/s",
                short(rates.ycsb),
                short(rates.payment),
                short(rates.new_order),
                short(rates.tpcc_commands),
                short(rates.voter_commands)
            )
        });
        format!(
            "<p class=\"soft\">{} \u{b7} {} \u{b7} {} \u{b7} {:.0} minutes</p>\n\
             <p>Every figure comes from runs of this program; their commands are below it. A \
             transaction, also a read-only one, counts if it is acknowledged as durable within {} \
             s ({} s where a slow device is the bottleneck) after {} s of warm-up. Every command \
             is run once in each of the first {} rounds, every other round backwards; one that \
             only a figure shows, and no check judges, in the first {}. The runs of a paper's \
             claim that is undecided then go on, to at most {} rounds, until it is decided or \
             their share of the time is over. Ratios are taken within a round. Bars and points are \
             medians (means below five rounds), thin bars and ranges in brackets 90 % intervals. \
             From {} rounds on a figure is dropped as an outlier if it is more than {} times as \
             far from the median as figures are in the median, unless there are more than one in \
             {} of them; the number of dropped ones is in the brackets. Runs with recovery crash \
             first, and the recovered state is compared with the state before the crash; if they \
             differ, the figures of the run are not shown. {} rows of 1,000 bytes, {} of TPC-C. \
             Offered loads are shares of this machine's rates on the same workload, with Taurus \
             command logging to memory unless said otherwise: {}.</p>\n\
             <p>Where the bandwidth of a device matters, throttled devices replace the paper's. \
             Their bandwidth follows from hardware alone: the bytes per second of the paper's \
             devices for each core and cycle of its processors, times the {} cores of {:.1} GHz \
             here. Curves go from slower devices to faster ones, and the paper's hardware is \
             marked.</p>\n\
             <p>A claim stands for a band: a factor or a value for a fifth more and less, a rise \
             or a fall for a twentieth at least. It <i>holds</i> if all of the interval lies in \
             the band, does <i>not hold</i> if all of it lies outside, and is <i>undecided</i> if \
             the interval has both, or after one run. What is all above <i>exceeds</i> the claim, \
             which is as suspicious as too little, and says why; what is all below the band and \
             above 1 holds <i>in part</i>, with the share of the factor's logarithm. Verdicts \
             count the papers' claims. What we expect and no paper states is counted apart; what \
             follows from the devices' sizes or from the set-up is not counted.</p>\n",
            match &self.about.commit {
                Some(commit) => format!("{}, commit {}", escape(program), escape(commit)),
                None => escape(program),
            },
            escape(machine),
            escape(date),
            (seconds / 60.0).max(1.0),
            size.seconds,
            size.device_seconds,
            size.warmup,
            JUDGED.min(size.rounds),
            SHOWN.min(size.rounds),
            size.rounds,
            ENOUGH,
            FAR,
            ENOUGH,
            grouped(size.rows),
            match size.warehouses {
                1 => "one warehouse".to_string(),
                n => format!("{n} warehouses"),
            },
            rates,
            processors.cores,
            processors.ghz
        )
    }

    fn summary(&self, judged: &[Judged<'_>]) -> String {
        let mut out = String::from(
            "<table><tr><th>Experiment</th><th>Source</th><th>Verdict</th><th>Result</th></tr>\n",
        );
        for judged in judged {
            let experiment = judged.view.experiment;
            let found = match judged.findings.iter().find_map(|(_, finding)| finding.as_ref()) {
                Some(first) => format!("{}{}", tally(&judged.findings), escape(&first.text)),
                None => escape(&reason(judged)),
            };
            let _ = writeln!(
                out,
                "<tr><td><a href=\"#{}\">{}</a></td><td>{}, \
                 {}</td><td>{}</td><td>{found}</td></tr>",
                experiment.id,
                escape(experiment.title),
                escape(experiment.paper.name()),
                escape(experiment.source),
                standing(judged)
            );
        }
        out + "</table>\n"
    }

    fn section(&self, judged: &Judged<'_>) -> String {
        let experiment = judged.view.experiment;
        let mut out = format!(
            "<section id=\"{}\"><h3>{} {}</h3>\n<p class=\"soft\">{} \u{b7} {}</p>\n<figure>\n",
            experiment.id,
            escape(experiment.title),
            standing(judged),
            escape(experiment.source),
            experiment.id
        );
        for panel in &experiment.panels {
            let shown = match &panel.shape {
                Shape::Table(cells) => table(&panel.title, &cells(&judged.view, panel.group)),
                _ => plot::chart(&judged.view, panel).map(|chart| draw(&chart)),
            };
            let empty = || format!("<p class=\"soft\">{}: no figures.</p>\n", escape(&panel.title));
            out += &shown.unwrap_or_else(empty);
        }
        out += "</figure>\n<dl>";
        let mut entry = |what: &str, text: &str| {
            let _ = writeln!(out, "<dt>{what}</dt><dd>{text}</dd>");
        };
        entry("Claim", &prose(experiment.claim));
        if !experiment.how.is_empty() {
            entry("Here", &prose(&experiment.how));
        }
        if !experiment.differs.is_empty() {
            let each = experiment.differs.iter().map(|text| format!("<li>{}.</li>", prose(text)));
            entry("Differs", &format!("<ul>{}</ul>", each.collect::<String>()));
        }
        entry("Result", &found(judged, self.about.calibration.as_ref()));
        out += "</dl>\n";
        out += &self.commands(judged);
        out += "</section>\n";
        out
    }

    /// The commands of an experiment's runs, as typed in a shell.
    fn commands(&self, judged: &Judged<'_>) -> String {
        let runs = &judged.view.experiment.runs;
        if runs.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        for run in runs {
            let _ = writeln!(text, "{}", escape(&self.about.command(run)));
            let words = self.data.of(&run.words).iter().find_map(|outcome| match outcome {
                Outcome::Done(_) => outcome.trouble().map(str::to_string),
                Outcome::Unavailable(words) => Some(format!("not available: {words}")),
                Outcome::Failed(words) => Some(format!("failed: {words}")),
                Outcome::Skipped => None,
            });
            if let Some(words) = words {
                let _ = writeln!(text, "    # {}", escape(&words));
            }
        }
        format!(
            "<details><summary>Commands of these runs \
             ({})</summary><pre><code>{text}</code></pre></details>\n",
            runs.len()
        )
    }

    fn calibration(&self) -> String {
        let Some(calibration) = &self.about.calibration else { return String::new() };
        let mut out = String::from(
            "<h2 id=\"calibration\">The model's calibration</h2>\n\
             <p>Costs are fitted to runs at one and two workers with the log in memory. The \
             held-out points, with more contention and with slow devices, were not used for them. \
             The residual is the model's rate over the measured one, minus one; at a fitted point \
             it is what the model cannot express.</p>\n",
        );
        for (key, what) in [("validation", "Held-out point"), ("fitted", "Fitted point")] {
            let points = calibration.get(key).and_then(Value::as_array);
            let Some(points) = points.filter(|points| !points.is_empty()) else { continue };
            let _ = writeln!(
                out,
                "<table><tr><th>{what}</th><th>Measured /s</th><th>Model \
                 /s</th><th>Residual</th></tr>"
            );
            for point in points {
                let number = |key| point.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
                let _ = writeln!(
                    out,
                    "<tr><td>{}</td><td>{:.0}</td><td>{:.0}</td><td>{:+.1} %</td></tr>",
                    escape(point.get("point").and_then(Value::as_str).unwrap_or("")),
                    number("measured"),
                    number("model"),
                    100.0 * number("residual")
                );
            }
            out += "</table>\n";
        }
        out += "<details><summary>Costs</summary><pre><code>";
        let costs = calibration.get("costs").unwrap_or(calibration);
        out += &escape(&serde_json::to_string_pretty(costs).unwrap_or_default());
        out + "</code></pre></details>\n"
    }

    /// The report as a JSON value.
    pub fn json(&self) -> Value {
        let definitions = definition::current();
        let experiments: Vec<Value> = self
            .judged()
            .iter()
            .map(|judged| {
                let experiment = judged.view.experiment;
                let runs: Vec<Value> = experiment
                    .runs
                    .iter()
                    .map(|run| {
                        json!({
                            "group": run.group, "series": run.series, "x": run.x,
                            "command": self.about.command(run),
                            "outcomes": self.data.of(&run.words),
                        })
                    })
                    .collect();
                let findings = findings(judged, self.about.calibration.as_ref());
                json!({
                    "id": experiment.id, "paper": experiment.paper.name(),
                    "source": experiment.source, "title": experiment.title,
                    "claim": experiment.claim, "how": experiment.how, "differs": experiment.differs,
                    "definition": definitions.get(experiment.id),
                    "verdict": judged.claims(), "expectations": judged.expectations(),
                    "simulated": experiment.is_simulated(),
                    "not_measured":
                        (judged.verdict == Verdict::NotMeasured).then(|| reason(judged)),
                    "checks": experiment.checks.len(), "findings": findings, "runs": runs,
                })
            })
            .collect();
        json!({ "about": self.about, "experiments": experiments })
    }

    /// The ids of the experiments, with the words on the claims and on our expectations.
    pub fn standings(&self) -> Vec<(&'static str, String)> {
        self.judged().iter().map(|j| (j.view.experiment.id, j.words().join("; "))).collect()
    }

    /// The ids of the experiments with the verdicts.
    pub fn verdicts(&self) -> Vec<(&'static str, Verdict)> {
        self.judged().iter().map(|j| (j.view.experiment.id, j.verdict)).collect()
    }
}

/// The findings of an experiment as JSON.
fn findings(judged: &Judged<'_>, calibration: Option<&Value>) -> Vec<Value> {
    let checks = judged.view.experiment.checks.iter();
    let all = checks.zip(&judged.findings).zip(&judged.notes);
    let finding = |((check, (basis, finding)), note): ((&Check, &(Basis, Option<Finding>)), _)| {
        let (found, note): (_, &Option<Note>) = (finding.as_ref()?, note);
        let why = |kind| note.as_ref().filter(|note| note.kind == kind).map(|note| &note.text);
        Some(json!({
            "residual": judged.residual(*basis, found, calibration),
            "text": found.text, "level": basis.level(found.level), "claimed": check.place(),
            "why_above": why(NoteKind::Above), "why_not": why(NoteKind::Not),
        }))
    };
    all.filter_map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_backticks_is_code() {
        assert_eq!(prose("a < 5 %"), "a &lt; 5\u{a0}%");
        let code = "see <code>log stat &lt;dir&gt;</code>, <code>dump</code>.";
        assert_eq!(prose("see `log stat <dir>`, `dump`."), code);
    }
}
