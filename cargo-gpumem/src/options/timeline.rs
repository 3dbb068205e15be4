//! The command line of `cargo gpumem timeline`.

use super::change::{Change, change};
use super::{Build, Settings};
use crate::Failure;
use crate::values::device;
use clap::{Args, ValueEnum};
use gpumem_core::report::Device;
use gpumem_core::suggest::nearest;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Timeline {
    /// Name of the network, or a file that is read without a build: `src/net.rs`, or `src/net.rs::Net` for one of several, or `model.pt2`
    #[arg(value_name = "NETWORK")]
    pub network: Option<String>,
    /// The file to write, instead of NETWORK-timeline.html. Its ending is the format; `-` is standard output
    #[arg(short, long, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// TimelineFormat, instead of that of the ending
    #[arg(long, value_enum)]
    pub format: Option<TimelineFormat>,
    /// A second plan beside the first, with these settings, such as `batch=64,checkpoint=Auto`
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = change)]
    pub against: Vec<Change>,
    /// Card to plan for, or a size such as `11.5GiB`, instead of the cards in the source
    #[arg(long, value_name = "CARD", value_parser = device)]
    pub card: Option<Device>,
    /// The forward pass instead of the training step
    #[arg(long)]
    pub inference: bool,
    /// Open the page in a browser
    #[arg(long)]
    pub open: bool,
    /// Replace a file that exists
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub settings: Settings,
    #[command(flatten)]
    pub build: Build,
}

/// The format of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimelineFormat {
    // A page for a browser, in one file.
    Html,
    // The two pictures of the step.
    Svg,
    // All data of the page.
    Json,
    // The tensors, for a spreadsheet.
    Csv,
    // A snapshot for PyTorch's memory viewer.
    Pickle,
}

impl TimelineFormat {
    /// Returns the ending of its files.
    pub fn ending(self) -> &'static str {
        match self {
            TimelineFormat::Html => "html",
            TimelineFormat::Svg => "svg",
            TimelineFormat::Json => "json",
            TimelineFormat::Csv => "csv",
            TimelineFormat::Pickle => "pickle",
        }
    }

    fn of_ending(ending: &str) -> Result<TimelineFormat, Failure> {
        let all = TimelineFormat::value_variants();
        if let Some(format) = all.iter().find(|format| format.ending().eq_ignore_ascii_case(ending)) {
            return Ok(*format);
        }
        let endings: Vec<&str> = all.iter().map(|format| format.ending()).collect();
        Err(match (ending.to_lowercase().as_str(), nearest(ending, &endings)) {
            ("png", _) => {
                "a PNG is saved from the page: write an .html, open it, and choose Export; or write an .svg".into()
            }
            ("htm", _) => "write the ending .html".into(),
            (_, Some(near)) => format!("no format has the ending .{ending}; did you mean .{near}?").into(),
            (_, None) => {
                let endings = endings.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>().join(", ");
                format!("no format has the ending .{ending}; there are {endings}").into()
            }
        })
    }
}

/// The place of the result, if one is named.
pub enum Target<'a> {
    Output,
    File(&'a Path),
}

impl Timeline {
    pub fn target(&self) -> Option<Target<'_>> {
        let path = self.output.as_deref()?;
        Some(if path == Path::new("-") { Target::Output } else { Target::File(path) })
    }

    /// Returns the format. Fails if the options do not say which, or do not go together.
    pub fn format(&self) -> Result<TimelineFormat, Failure> {
        let format = match (self.format, self.target()) {
            (Some(format), _) => format,
            (None, None) => TimelineFormat::Html,
            (None, Some(Target::Output)) => {
                return Err("say what to write to standard output, as `-o - --format json`".into());
            }
            (None, Some(Target::File(path))) => {
                let ending = path.extension().map(|ending| ending.to_string_lossy().into_owned());
                let none = || format!("{} has no ending; end it in .html, or add `--format`", path.display());
                TimelineFormat::of_ending(&ending.ok_or_else(none)?)?
            }
        };
        if !self.against.is_empty() && !matches!(format, TimelineFormat::Html | TimelineFormat::Json) {
            return Err(format!("`--against` is for pages: write .html or .json, not .{}", format.ending()).into());
        }
        if self.open
            && (matches!(self.target(), Some(Target::Output))
                || !matches!(format, TimelineFormat::Html | TimelineFormat::Svg))
        {
            return Err("`--open` opens a page or a picture in a file: write .html or .svg".into());
        }
        Ok(format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(output: Option<&str>, format: Option<TimelineFormat>) -> Result<TimelineFormat, String> {
        let arguments = Timeline {
            network: None,
            output: output.map(PathBuf::from),
            format,
            against: Vec::new(),
            card: None,
            inference: false,
            open: false,
            force: false,
            settings: Settings::default(),
            build: Build::default(),
        };
        arguments.format().map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_ending_is_the_format() {
        for (output, expected) in [
            ("a.html", TimelineFormat::Html),
            ("a.SVG", TimelineFormat::Svg),
            ("b/a.json", TimelineFormat::Json),
            ("a.b.csv", TimelineFormat::Csv),
            ("a.pickle", TimelineFormat::Pickle),
        ] {
            assert_eq!(format(Some(output), None), Ok(expected));
        }
        assert_eq!(format(None, None), Ok(TimelineFormat::Html));
        assert_eq!(format(Some("a"), Some(TimelineFormat::Csv)), Ok(TimelineFormat::Csv));
        assert_eq!(format(Some("-"), Some(TimelineFormat::Json)), Ok(TimelineFormat::Json));
    }

    #[test]
    fn other_endings_say_what_to_write() {
        let message = |output: &str| format(Some(output), None).unwrap_err();
        assert!(message("a.png").contains("choose Export"));
        assert_eq!(message("a.htm"), "write the ending .html");
        assert_eq!(message("a.jsn"), "no format has the ending .jsn; did you mean .json?");
        assert!(message("a.xlsx").ends_with("there are .html, .svg, .json, .csv, .pickle"));
        assert_eq!(message("a"), "a has no ending; end it in .html, or add `--format`");
        assert_eq!(message("-"), "say what to write to standard output, as `-o - --format json`");
    }
}
