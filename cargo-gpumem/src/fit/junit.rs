//! Answers as a JUnit report, which most services for continuous integration show.

use super::sentence;
use crate::Failure;
use crate::answer::{Answer, Answers};
use crate::network::LeftOut;
use crate::text::name;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, Event};
use std::io;

/// Returns a report with a test case for each answer. Networks without an answer are skipped cases.
pub fn report(found: &Answers) -> Result<String, Failure> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let refused = found.answers.iter().filter(|answer| answer.left().is_err()).count();
    let (tests, skipped) = (found.answers.len() + found.left_out.len(), found.left_out.len());
    let counts = [("tests", tests), ("failures", refused), ("errors", 0), ("skipped", skipped)];
    let counts = counts.map(|(name, count)| (name, count.to_string()));
    let counts = || counts.iter().map(|(name, count)| (*name, count.as_str()));
    let name = [("name", "cargo gpumem fit")];
    writer.create_element("testsuites").with_attributes(name.into_iter().chain(counts())).write_inner_content(
        |writer| {
            let suite = writer.create_element("testsuite").with_attributes(name.into_iter().chain(counts()));
            suite.write_inner_content(|writer| {
                found.answers.iter().try_for_each(|answer| case(writer, answer))?;
                found.left_out.iter().try_for_each(|left_out| skipped_case(writer, left_out))
            })?;
            Ok(())
        },
    )?;
    Ok(String::from_utf8(writer.into_inner())? + "\n")
}

/// Writes the case of a network on a card.
fn case(writer: &mut Writer<Vec<u8>>, answer: &Answer) -> io::Result<()> {
    let title = format!("{} ({}) on {}", answer.label, answer.program, name(answer.device));
    let line = answer.line.to_string();
    let attributes = [("name", &*title), ("classname", &*answer.title), ("file", &*answer.file), ("line", &*line)];
    let element = writer.create_element("testcase").with_attributes(attributes);
    let text = sentence(answer);
    element.write_inner_content(|writer| match answer.left() {
        Ok(_) => {
            let output = writer.create_element("system-out");
            output.write_text_content(quick_xml::events::BytesText::new(&text)).map(drop)
        }
        Err(_) => {
            let failure = writer.create_element("failure").with_attribute(("message", &*text));
            failure.write_empty().map(drop)
        }
    })?;
    Ok(())
}

/// Writes the case of a network without an answer.
fn skipped_case(writer: &mut Writer<Vec<u8>>, left_out: &LeftOut) -> io::Result<()> {
    let line = left_out.line.to_string();
    let attributes =
        [("name", &*left_out.label), ("classname", &*left_out.name), ("file", &*left_out.file), ("line", &*line)];
    let element = writer.create_element("testcase").with_attributes(attributes);
    element.write_inner_content(|writer| {
        let skipped = writer.create_element("skipped").with_attribute(("message", &*left_out.why));
        skipped.write_empty().map(drop)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumem_core::cards;
    use gpumem_core::report::Device;
    use gpumem_core::train::Ranks;

    fn answer(total: u64) -> Answer {
        Answer {
            title: "Net<64>".into(),
            label: "Net<64>".into(),
            program: "train",
            networks: None,
            package: None,
            file: "src/a & b.rs".into(),
            line: 7,
            batch: Some(64),
            precision: Some("F32"),
            device: Device::Known(cards::find("t4").unwrap()),
            ranks: Ranks::ALONE,
            total,
            headroom: 0,
            largest_batch: Some(70),
            longest_cache: None,
            cheaper: None,
            alternatives: Vec::new(),
        }
    }

    #[test]
    fn a_case_for_each_answer_and_each_network_without_one() {
        let left_out = LeftOut {
            label: "Wide".into(),
            name: "Wide".into(),
            program: None,
            package: None,
            file: "src/wide.rs".into(),
            line: 3,
            why: "names \"no\" card".into(),
        };
        let found = Answers { answers: vec![answer(1 << 30), answer(1 << 40)], left_out: vec![left_out] };
        let usable = crate::text::bytes(cards::find("t4").unwrap().usable());
        let left = crate::text::bytes(cards::find("t4").unwrap().usable() - (1 << 30));
        let over = crate::text::bytes((1 << 40) - cards::find("t4").unwrap().usable());
        let case = r#"    <testcase name="Net&lt;64&gt; (train) on T4" classname="Net&lt;64&gt;" file="src/a &amp; b.rs" line="7">"#;
        let needs = |total: &str, verdict: &str| {
            format!(
                "`Net&lt;64&gt;` at batch 64 needs {total} and {verdict} (T4 has {usable}); the largest batch is 70"
            )
        };
        let (fits, refused) =
            (needs("1.00 GiB", &format!("fits, {left} left")), needs("1024.00 GiB", &format!("is over by {over}")));
        let expected = format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="cargo gpumem fit" tests="3" failures="1" errors="0" skipped="1">
  <testsuite name="cargo gpumem fit" tests="3" failures="1" errors="0" skipped="1">
{case}
      <system-out>{fits}</system-out>
    </testcase>
{case}
      <failure message="{refused}"/>
    </testcase>
    <testcase name="Wide" classname="Wide" file="src/wide.rs" line="3">
      <skipped message="names &quot;no&quot; card"/>
    </testcase>
  </testsuite>
</testsuites>
"#
        );
        assert_eq!(report(&found).unwrap(), expected);
    }
}
