//! The screen of `watch` in a terminal: a pane for each card, which is drawn anew after each reading.

use super::process::Program;
use super::report::{log_text, name, network, watts_text};
use super::{Reader, Watched};
use crate::Failure;
use crate::bars::{bar, height};
use crate::text::{bytes, difference};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};
use std::time::{Duration, Instant};

/// The state of the screen.
#[derive(Default)]
struct Screen {
    /// The process that is chosen, counted over all cards.
    chosen: usize,
    /// True if the lines of the budget of the chosen process are shown.
    has_details: bool,
    /// The first line that is shown.
    top: u16,
}

/// The result of a key.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Stay,
    End,
}

/// Shows cards until `q` is pressed.
pub fn run(reader: &mut Reader, mut watched: Vec<Watched>, interval: Duration) -> Result<(), Failure> {
    let mut terminal =
        ratatui::try_init().map_err(|error| format!("cannot use the terminal: {error}; try `--once`"))?;
    let mut screen = Screen::default();
    let mut work = || -> Result<(), Failure> {
        let mut read = Instant::now();
        loop {
            terminal.draw(|frame| draw(frame, &screen, &watched))?;
            let rest = interval.saturating_sub(read.elapsed());
            if event::poll(rest)? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                {
                    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    if is_interrupt || screen.press(key.code, count(&watched)) == Next::End {
                        return Ok(());
                    }
                }
            } else {
                watched = reader.read()?;
                read = Instant::now();
            }
        }
    };
    let done = work();
    ratatui::restore();
    done
}

fn count(watched: &[Watched]) -> usize {
    watched.iter().map(|watched| watched.programs.len()).sum()
}

impl Screen {
    /// Acts on a key, with so many processes.
    fn press(&mut self, key: KeyCode, processes: usize) -> Next {
        match key {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Esc if !self.has_details => return Next::End,
            KeyCode::Esc => self.has_details = false,
            KeyCode::Enter => self.has_details = !self.has_details,
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(processes.saturating_sub(1)),
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::PageDown => self.top = self.top.saturating_add(10),
            KeyCode::PageUp => self.top = self.top.saturating_sub(10),
            _ => {}
        }
        Next::Stay
    }
}

/// Draws all cards, one below the other.
fn draw(frame: &mut Frame<'_>, screen: &Screen, watched: &[Watched]) {
    let area = frame.area();
    let inside = usize::from(area.width).saturating_sub(4);
    let (mut y, mut number, mut skipped) = (area.y, 0, screen.top);
    for card in watched {
        let lines = of_card(card, screen, &mut number, inside);
        let tall = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2);
        if skipped >= tall {
            skipped -= tall;
            continue;
        }
        let rows = tall.min(area.bottom().saturating_sub(y).saturating_sub(1));
        if rows > 2 {
            let title = format!(" {} {} ", card.card.index, card.card.name);
            let pane = Paragraph::new(lines).block(Block::bordered().title(title));
            frame.render_widget(pane, Rect { y, height: rows, ..area });
        }
        y = y.saturating_add(tall);
    }
    if watched.is_empty() {
        frame.render_widget(Paragraph::new("the driver knows no card"), area);
    }
    if area.height > 0 {
        let keys = Paragraph::new("q quits, arrows choose a process, Enter shows its budget, Page keys scroll");
        let keys = keys.style(Style::new().add_modifier(Modifier::DIM));
        frame.render_widget(keys, Rect { y: area.bottom() - 1, height: 1, ..area });
    }
}

/// Returns the lines of a card and its processes. `number` counts processes over all cards.
fn of_card(watched: &Watched, screen: &Screen, number: &mut usize, width: usize) -> Vec<Line<'static>> {
    let Watched { card, programs } = watched;
    let figures = [
        Some(format!("{} of {}", bytes(card.used), bytes(card.total))),
        card.utilisation.map(|percent| format!("{percent} %")),
        card.watts.map(|watts| watts_text(watts, card.most_watts)),
        card.celsius.map(|degrees| format!("{degrees} \u{b0}C")),
    ];
    let figures = figures.into_iter().flatten().collect::<Vec<_>>().join("  ");
    let wide = width.saturating_sub(figures.chars().count() + 3).max(8);
    let filled = bar(card.used, card.total, wide);
    let gap = " ".repeat(wide - filled.chars().count());
    let colour = if card.used.saturating_mul(20) > card.total.saturating_mul(19) { Color::Red } else { Color::Green };
    let mut lines = vec![Line::from(vec![
        Span::raw("["),
        Span::styled(filled, Style::new().fg(colour)),
        Span::raw(format!("{gap}] {figures}")),
    ])];
    for program in programs {
        let is_chosen = *number == screen.chosen;
        *number += 1;
        lines.extend(of_program(program, is_chosen, is_chosen && screen.has_details, width));
    }
    lines
}

/// Returns the lines of a process: its memory beside the budget of each of its programs, and its training.
fn of_program(program: &Program, is_chosen: bool, has_details: bool, width: usize) -> Vec<Line<'static>> {
    let measured = program.process.used.map_or_else(|| "unknown".into(), bytes);
    let kind = if program.planned.is_empty() { "  not gpumem" } else { "" };
    let text = format!("{:>7} {}  measured {measured}{kind}", program.process.pid, name(program));
    let style = if is_chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    let mut lines = vec![Line::styled(text, style)];
    for planned in &program.planned {
        let differs = program.process.used.map(|used| format!("  {}", difference(planned.total, used)));
        let differs = differs.unwrap_or_default();
        lines.push(Line::raw(format!("        {}  budget {}{differs}", network(planned), bytes(planned.total))));
        if has_details {
            let most = planned.lines.iter().filter(|(name, _)| *name != "arena").map(|it| it.1).max().unwrap_or(0);
            for (name, of) in &planned.lines {
                let drawn = if *name == "arena" { String::new() } else { bar(*of, most, width.saturating_sub(42)) };
                let before = format!("          {name:<13} {:>11} ", bytes(*of));
                lines.push(Line::from(vec![Span::raw(before), Span::styled(drawn, Style::new().fg(Color::Cyan))]));
            }
        }
    }
    if let Some(log) = &program.log {
        let text = format!("        {}  ", log_text(log, program.planned.first()));
        let room = width.saturating_sub(text.chars().count());
        lines.push(Line::from(vec![
            Span::raw(text),
            Span::styled(curve(&log.losses, room), Style::new().fg(Color::Yellow)),
        ]));
    }
    lines
}

/// Returns the newest losses as a curve of at most `width` characters. The lowest is an eighth high.
fn curve(losses: &[f64], width: usize) -> String {
    let shown = &losses[losses.len().saturating_sub(width)..];
    let (least, most) =
        shown.iter().fold((f64::MAX, f64::MIN), |(least, most), &loss| (least.min(loss), most.max(loss)));
    let range = (most - least).max(f64::MIN_POSITIVE);
    // Parts of a thousand; a float becomes an integer with saturation.
    shown.iter().map(|loss| height((1000.0 * (loss - least) / range).max(1.0) as u64, 1000)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::nvml::{Card, Process};
    use super::super::process::{Log, Planned};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn watched() -> Vec<Watched> {
        let process = |pid, used| Process { pid, used: Some(used) };
        let planned = Planned {
            label: "Net".into(),
            program: "train",
            batch: 32,
            precision: "F32",
            lines: vec![("weights", 1 << 20), ("activations", 3 << 20), ("arena", 4 << 20), ("reserve", 1 << 20)],
            total: 5 << 20,
        };
        let log = Log { path: "log.jsonl".into(), step: 7, losses: vec![3.0, 2.0, 1.0], steps_a_second: Some(2.0) };
        let ours = Program {
            process: process(11, 4 << 20),
            name: Some("train".into()),
            planned: vec![planned],
            log: Some(log),
        };
        let other = Program { process: process(12, 1 << 20), name: None, planned: Vec::new(), log: None };
        let card = Card {
            index: 0,
            name: "RTX 3060".into(),
            uuid: None,
            total: 12 << 30,
            used: 6 << 30,
            utilisation: Some(97),
            watts: Some(168.0),
            most_watts: None,
            celsius: Some(71),
            processes: vec![ours.process, other.process],
        };
        vec![Watched { card, programs: vec![ours, other] }]
    }

    fn drawn(screen: &Screen, size: (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| draw(frame, screen, &watched())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_card_has_its_figures_and_processes() {
        let text = drawn(&Screen::default(), (100, 20));
        for part in [
            " 0 RTX 3060 ",
            "6.00 GiB of 12.00 GiB  97 %  168 W  71 \u{b0}C",
            "11 train  measured 4.0 MiB",
            "Net, train, batch 32, F32  budget 5.0 MiB  -1.0 MiB",
            "step 7, loss 1.0000, 64.0 samples/s  \u{2588}\u{2584}\u{2581}",
            "12 ?  measured 1.0 MiB  not gpumem",
            "q quits",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("activations"), "{text}");
        let text = drawn(&Screen { has_details: true, ..Screen::default() }, (100, 20));
        assert!(text.contains("activations       3.0 MiB \u{2588}"), "{text}");
    }

    #[test]
    fn a_small_terminal_does_not_panic() {
        for size in [(1, 1), (3, 2), (10, 4), (40, 1), (300, 100)] {
            drawn(&Screen { has_details: true, top: 2, chosen: 1 }, size);
        }
    }

    #[test]
    fn keys_choose_and_end() {
        let mut screen = Screen::default();
        assert_eq!(
            [KeyCode::Down, KeyCode::Down, KeyCode::Enter].map(|key| screen.press(key, 2)),
            [Next::Stay, Next::Stay, Next::Stay]
        );
        assert!(screen.chosen == 1 && screen.has_details);
        assert_eq!((screen.press(KeyCode::Esc, 2), screen.has_details), (Next::Stay, false));
        assert_eq!(
            (screen.press(KeyCode::Up, 2), screen.chosen, screen.press(KeyCode::Esc, 2)),
            (Next::Stay, 0, Next::End)
        );
        assert_eq!(screen.press(KeyCode::Char('q'), 0), Next::End);
    }
}
