//! A page with the data of one or two steps in it. It needs no other file and no network.

use serde_json::Value;

const TEMPLATE: &str = include_str!("../../page/template.html");
const STYLE: &str = include_str!("../../page/style.css");

/// The scripts, in the order in which they run. They share one scope.
const SCRIPTS: [&str; 12] = [
    include_str!("../../page/data.js"),
    include_str!("../../page/units.js"),
    include_str!("../../page/state.js"),
    include_str!("../../page/vector.js"),
    include_str!("../../page/curve.js"),
    include_str!("../../page/map.js"),
    include_str!("../../page/pane.js"),
    include_str!("../../page/head.js"),
    include_str!("../../page/table.js"),
    include_str!("../../page/side.js"),
    include_str!("../../page/export.js"),
    include_str!("../../page/keys.js"),
];

/// Returns the page of these steps: one, or two that are compared.
pub fn page(title: &str, steps: &[Value]) -> String {
    // A script element ends at the first `</`, so no `<` of a name may be in it.
    let data = Value::from(steps).to_string().replace('<', "\\u003c");
    let script = format!("\"use strict\";\n(() => {{\n{}\n}})();\n", SCRIPTS.join("\n"));
    let mut page = String::with_capacity(TEMPLATE.len() + STYLE.len() + data.len() + script.len());
    let mut rest = TEMPLATE;
    // Parts are put in from left to right, so that a part which looks like a mark is left alone.
    for (mark, part) in
        [("{{title}}", escaped(title)), ("{{style}}", STYLE.into()), ("{{data}}", data), ("{{script}}", script)]
    {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        page += before;
        page += &part;
        rest = after;
    }
    page + rest
}

/// Returns a text as HTML and SVG show it.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_do_not_end_the_script_and_marks_in_them_stay() {
        let page = page("A<64> {{script}}", &[json!({ "title": "</script>{{script}}" })]);
        assert!(page.contains("<title>A&lt;64&gt; {{script}}</title>"));
        assert!(page.contains(r#"[{"title":"\u003c/script>{{script}}"}]"#));
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.trim_end().ends_with("</html>"));
    }

    /// Nothing is fetched: the policy of the page forbids it, and no address is in it but that of SVG's names.
    #[test]
    fn a_page_stands_alone() {
        let page = page("Net", &[]);
        assert!(page.contains("default-src 'none'"));
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count() + page.matches("http-equiv").count());
        assert!(!page.contains("import ") && !page.contains("src=\""));
    }
}
