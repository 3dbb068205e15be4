//! Progress of a training, on a terminal or as plain lines.

use gpumem_core::memory::budget::Line;
use gpumem_core::network::{Network, Trains};
use gpumem_core::report::text;
use gpumem_data::{Batched, ElementType};
use indicatif::{ProgressBar, ProgressStyle};
use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Seconds between plain lines within an epoch.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// The time between two updates of a progress bar.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// The unit in which speed is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    name: &'static str,
    /// The number of units of a sample.
    each: u64,
}

impl Unit {
    /// Returns tokens for a network whose input is a sequence of tokens, and samples for others.
    pub fn of<I: Batched>() -> Unit {
        let mut input = I::zeros();
        match &*input.slots(0) {
            [slot] if slot.element_type() == ElementType::U32 && !slot.shape().is_empty() => {
                Unit { name: "tokens", each: slot.shape().iter().product::<usize>() as u64 }
            }
            _ => Unit { name: "samples", each: 1 },
        }
    }
}

/// Returns the memory that the network takes, with that of the smallest card that it was checked against.
pub(crate) fn memory<N: Trains>() -> String {
    let total = text::bytes(N::BUDGET[Line::Total]);
    match <N as Network>::CARDS.iter().min_by_key(|card| card.usable()) {
        Some(card) => format!("{total} of {} ({})", text::bytes(card.usable()), card.short_name),
        None => total,
    }
}

/// The state of a training after a step, for a display.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status<'a> {
    /// The epoch of the last batch; the first is 0.
    pub epoch: u64,
    /// Epochs of the whole training. `None` if it is not known.
    pub epochs: Option<u64>,
    pub step: u64,
    /// Steps of the whole training. `None` if it is not known.
    pub steps: Option<u64>,
    pub loss: f64,
    /// Samples of this run. `busy` is the time that their steps took.
    pub samples: u64,
    pub busy: Duration,
    /// Steps of this run.
    pub steps_made: u64,
    /// The part of `busy` in which the training waited for data.
    pub waited: Duration,
    pub unit: Unit,
    pub memory: &'a str,
}

impl Status<'_> {
    /// Returns the status in one line.
    pub fn line(&self) -> String {
        format!("{}  {}", self.place(), self.pace())
    }

    /// Returns epoch, step and loss.
    fn place(&self) -> String {
        let of = |total: Option<u64>| total.map(|total| format!("/{total}")).unwrap_or_default();
        let Status { epoch, epochs, step, steps, loss, .. } = *self;
        format!("epoch {}{}  step {step}{}  loss {loss:.4}", epoch + 1, of(epochs), of(steps))
    }

    /// Returns speed, time left, memory, and the share of time in which the training waited for data.
    fn pace(&self) -> String {
        let mut text = String::new();
        let seconds = self.busy.as_secs_f64();
        if seconds > 0.0 && self.samples > 0 {
            let speed = (self.samples * self.unit.each) as f64 / seconds;
            text += &format!("{} {}/s  ", rounded(speed), self.unit.name);
            if let Some(left) = self.left() {
                text += &format!("{} left  ", duration(left));
            }
        }
        text += &format!("memory {}", self.memory);
        let share = if seconds > 0.0 { 100.0 * self.waited.as_secs_f64() / seconds } else { 0.0 };
        if share >= 1.0 {
            text += &format!("  waiting for data {:.0} %", share.min(100.0));
        }
        text
    }

    /// Returns the time for the remaining steps. `None` if it is not known.
    fn left(&self) -> Option<Duration> {
        let left = self.steps?.saturating_sub(self.step);
        let each = self.busy.as_secs_f64() / self.steps_made.max(1) as f64;
        Duration::try_from_secs_f64(each * left as f64).ok()
    }
}

/// Returns a speed with three significant digits.
fn rounded(speed: f64) -> String {
    match speed {
        speed if speed >= 1e6 => format!("{:.2} M", speed / 1e6),
        speed if speed >= 100.0 => format!("{speed:.0}"),
        speed if speed >= 10.0 => format!("{speed:.1}"),
        speed => format!("{speed:.2}"),
    }
}

/// Returns a duration in its two largest units.
fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Returns the values of an evaluation in one line.
pub(crate) fn evaluation_line(epoch: u64, step: u64, values: &[(String, f64)], is_best: bool) -> String {
    let values: String = values.iter().map(|(name, value)| format!("  {name} {value:.4}")).collect();
    format!("epoch {}  step {step}{values}{}", epoch + 1, if is_best { "  (best)" } else { "" })
}

/// A progress bar that is removed from the terminal when it is dropped.
pub(crate) struct Bar(ProgressBar);

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The display of progress.
pub(crate) enum Display<'c> {
    /// Nowhere.
    Quiet,
    /// A bar on the terminal.
    Bar { bar: Bar, next: Instant },
    /// Lines, as in a log file.
    Plain { to: Box<dyn Write + 'c>, next: Instant },
}

impl<'c> Display<'c> {
    /// Chooses a bar if standard error is a terminal, and lines otherwise.
    pub fn on_stderr() -> Display<'c> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !std::io::stderr().is_terminal() || is_dumb {
            return Display::lines(Box::new(std::io::stderr()));
        }
        let has_color = has_color(std::env::var_os("NO_COLOR").as_deref());
        let bar = ProgressBar::no_length();
        bar.set_style(style(has_color));
        Display::Bar { bar: Bar(bar), next: Instant::now() }
    }

    /// Returns a display of plain lines.
    pub fn lines(to: Box<dyn Write + 'c>) -> Display<'c> {
        Display::Plain { to, next: Instant::now() + LINE_EVERY }
    }

    /// Ends the display, and returns the writer of lines. `None` if there is none.
    pub fn into_lines(self) -> Option<Box<dyn Write + 'c>> {
        match self {
            Display::Plain { to, .. } => Some(to),
            Display::Quiet | Display::Bar { .. } => None,
        }
    }

    /// Shows the status if it is time to.
    pub fn step(&mut self, status: &Status<'_>) {
        let now = Instant::now();
        match self {
            Display::Quiet => {}
            Display::Bar { bar, next } => {
                if now < *next {
                    return;
                }
                *next = now + BAR_EVERY;
                let Bar(bar) = bar;
                if let Some(steps) = status.steps {
                    bar.set_length(steps);
                    bar.set_position(status.step);
                }
                bar.set_prefix(status.place());
                bar.set_message(status.pace());
                bar.tick();
            }
            Display::Plain { next, .. } => {
                if now >= *next {
                    *next = now + LINE_EVERY;
                    self.line(&status.line());
                }
            }
        }
    }

    /// Shows a line that stays.
    pub fn line(&mut self, line: &str) {
        match self {
            Display::Quiet => {}
            Display::Bar { bar: Bar(bar), .. } => bar.println(line),
            // An error of the writer must not end the training.
            Display::Plain { to, .. } => drop(writeln!(to, "{line}")),
        }
    }
}

/// True unless `NO_COLOR` is set and not empty, see <https://no-color.org>.
fn has_color(no_color: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty)
}

/// Returns the look of the bar.
fn style(has_color: bool) -> ProgressStyle {
    ProgressStyle::with_template(template(has_color))
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn template(has_color: bool) -> &'static str {
    // On a narrow terminal, only the end of the second line is cut off.
    if has_color { "[{bar:24.green}] {prefix}\n{wide_msg}" } else { "[{bar:24}] {prefix}\n{wide_msg}" }
}

#[cfg(test)]
mod tests {
    use super::{Bar, Display, Status, Unit, duration, evaluation_line, has_color, rounded, style, template};
    use gpumem_core::run::tensor::Tensor;
    use gpumem_core::typed::D;
    use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
    use std::ffi::OsStr;
    use std::time::{Duration, Instant};

    const STATUS: Status<'_> = Status {
        epoch: 2,
        epochs: Some(90),
        step: 120,
        steps: Some(400),
        loss: 0.51234,
        samples: 1920,
        busy: Duration::from_secs(6),
        steps_made: 60,
        waited: Duration::from_millis(720),
        unit: Unit { name: "samples", each: 1 },
        memory: "1.20 GiB of 11.63 GiB (RTX 3060)",
    };

    #[test]
    fn a_line_has_all_there_is_to_say() {
        assert_eq!(
            STATUS.line(),
            "epoch 3/90  step 120/400  loss 0.5123  320 samples/s  28 s left  memory 1.20 GiB of 11.63 GiB (RTX 3060)  waiting for data 12 %"
        );
        let unknown = Status { epochs: None, steps: None, waited: Duration::ZERO, memory: "1.0 MiB", ..STATUS };
        assert_eq!(unknown.line(), "epoch 3  step 120  loss 0.5123  320 samples/s  memory 1.0 MiB");
        let first = Status { busy: Duration::ZERO, samples: 0, ..unknown };
        assert_eq!(first.line(), "epoch 3  step 120  loss 0.5123  memory 1.0 MiB");
        let tokens = Status { unit: Unit { name: "tokens", each: 1024 }, ..unknown };
        assert!(tokens.line().contains("  327680 tokens/s  "));
    }

    #[test]
    fn speed_is_told_in_tokens_for_sequences_of_them() {
        assert_eq!(Unit::of::<Tensor<u32, (D<2>, D<16>)>>(), Unit { name: "tokens", each: 16 });
        assert_eq!(Unit::of::<Tensor<f32, (D<2>, D<16>)>>(), Unit { name: "samples", each: 1 });
        let two = Unit::of::<(Tensor<u32, (D<2>, D<16>)>, Tensor<f32, (D<2>, D<16>)>)>();
        assert_eq!(two, Unit { name: "samples", each: 1 });
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.1234, 12.34, 1234.5, 2.5e6].map(rounded), ["0.12", "12.3", "1234", "2.50 M"]);
        let seconds = [5, 65, 3700, 90_000].map(|seconds| duration(Duration::from_secs(seconds)));
        assert_eq!(seconds, ["5 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]);
        let values = [("train_loss".to_string(), 0.5), ("val_accuracy".to_string(), 0.91)];
        assert_eq!(
            evaluation_line(0, 7, &values, true),
            "epoch 1  step 7  train_loss 0.5000  val_accuracy 0.9100  (best)"
        );
        assert_eq!(evaluation_line(1, 7, &[], false), "epoch 2  step 7");
    }

    #[test]
    fn a_bar_follows_the_steps() {
        let hidden = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let mut display = Display::Bar { bar: Bar(hidden.clone()), next: Instant::now() };
        display.step(&STATUS);
        assert_eq!((hidden.position(), hidden.length()), (120, Some(400)));
        assert_eq!(format!("{}  {}", hidden.prefix(), hidden.message()), STATUS.line());
        // The bar is not drawn for each step.
        display.step(&Status { step: 121, ..STATUS });
        assert_eq!(hidden.position(), 120);
        display.line("a line that stays");
        assert!(display.into_lines().is_none() && hidden.is_finished());
    }

    #[test]
    fn lines_come_from_time_to_time() {
        let mut text = Vec::new();
        let mut display = Display::Plain { to: Box::new(&mut text), next: Instant::now() };
        display.step(&STATUS);
        display.step(&Status { step: 121, ..STATUS });
        display.line("end");
        assert!(display.into_lines().is_some());
        assert_eq!(String::from_utf8(text).unwrap(), format!("{}\nend\n", STATUS.line()));
        Display::Quiet.line("nothing");
    }

    #[test]
    fn no_color_leaves_colors_out() {
        assert!(has_color(None) && has_color(Some(OsStr::new(""))) && !has_color(Some(OsStr::new("1"))));
        assert!(template(true).contains("green") && !template(false).contains("green"));
        for has_color in [true, false] {
            ProgressStyle::with_template(template(has_color)).unwrap();
            style(has_color);
        }
    }
}
