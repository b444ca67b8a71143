//! The text for people: the default one, or the template of the channel.
//!
//! Templates are a part of Jinja in which texts cannot grow: a step limit alone would not bound memory, because one step
//! can double a text. [`problem`] permits only what is listed here, when a template is saved and again before it is
//! compiled, because an earlier release may have saved it.

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, ForLoop, Stmt};
use minijinja::machinery::{Token, WhitespaceConfig, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};
use punctual_core::limits;
use punctual_core::notify::{OutgoingMessage, default_text, default_title};
use std::io;

const FILTERS: [&str; 15] = [
    "abs",
    "capitalize",
    "count",
    "d",
    "default",
    "first",
    "int",
    "join",
    "last",
    "length",
    "lower",
    "replace",
    "round",
    "trim",
    "upper",
];
const TESTS: [&str; 6] = ["defined", "endingwith", "none", "number", "startingwith", "undefined"];
/// Arguments of a filter.
const ARGUMENTS_MAX: usize = 2;

/// What is wrong with a template.
pub(super) fn problem(template: &str) -> Option<String> {
    let not_a_template = |error: &Error| format!("is not a template: {error}");
    if let Some(problem) = size_problem(template) {
        return Some(problem);
    }
    let parsed = parse(template, "template", SyntaxConfig, WhitespaceConfig::default());
    match parsed.map(|root| statement_problem(&root)) {
        Ok(Some(part)) => Some(format!(
            "uses {part}, which templates of channels do not have; they have {{{{ … }}}}, {{% if %}} and {{% for %}}, \
             comparisons, and the filters {}",
            FILTERS.join(", ")
        )),
        Ok(None) => environment().template_from_str(template).err().as_ref().map(not_a_template),
        Err(error) => Some(not_a_template(&error)),
    }
}

/// The text of a message. A template that fails must not hide the event, so the default text is sent then.
pub(super) fn text(message: &OutgoingMessage) -> String {
    let Some(template) = &message.channel.template else { return default_text(message) };
    let text = rendered(template, message).and_then(|text| match text.trim() {
        "" => Err("it made an empty text, which services reject".to_owned()),
        _ => Ok(text),
    });
    text.unwrap_or_else(|error| {
        tracing::warn!(error, "the template of a channel failed: the default text is sent");
        default_text(message)
    })
}

fn rendered(template: &str, message: &OutgoingMessage) -> Result<String, String> {
    if let Some(problem) = problem(template) {
        return Err(format!("the template {problem}"));
    }
    let environment = environment();
    let template = environment.template_from_str(template).map_err(|error| error.to_string())?;
    let mut text = BoundedText::default();
    let context = context! {
        title => default_title(&message.events, message.count),
        text => default_text(message),
        type => message.kind().word(),
        event => message.events.first(),
        events => &message.events,
        count => message.count,
        logs => &message.logs,
    };
    template.render_captured_to(context, &mut text).map_err(|error| error.to_string())?;
    String::from_utf8(text.0).map_err(|error| error.to_string())
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(limits::CHANNEL_TEMPLATE_FUEL));
    environment.add_filter("join", joined);
    environment.add_filter("replace", replaced);
    environment
}

/// A text that refuses to become too long.
#[derive(Default)]
struct BoundedText(Vec<u8>);

impl BoundedText {
    fn push(&mut self, text: &[u8]) -> Result<(), Error> {
        io::Write::write_all(self, text)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    }

    fn into_string(self) -> Result<String, Error> {
        String::from_utf8(self.0).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    }
}

impl io::Write for BoundedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > limits::CHANNEL_TEXT_BYTES_MAX {
            let max = limits::CHANNEL_TEXT_BYTES_MAX;
            return Err(io::Error::other(format!("the text is longer than {max} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn joined(list: &Value, separator: Option<String>) -> Result<String, Error> {
    let mut text = BoundedText::default();
    for (place, item) in list.try_iter()?.enumerate() {
        if let Some(separator) = separator.as_ref().filter(|_| place > 0) {
            text.push(separator.as_bytes())?;
        }
        text.push(item.to_string().as_bytes())?;
    }
    text.into_string()
}

fn replaced(text: &str, from: &str, to: &str) -> Result<String, Error> {
    let mut replaced = BoundedText::default();
    for (place, part) in text.split(from).enumerate() {
        if place > 0 {
            replaced.push(to.as_bytes())?;
        }
        replaced.push(part.as_bytes())?;
    }
    replaced.into_string()
}

/// Statements and expressions nest by their length, and the parser is recursive.
fn size_problem(template: &str) -> Option<String> {
    let (mut tags, mut tokens) = (0, 0);
    for token in tokenize(template, false, SyntaxConfig, WhitespaceConfig::default()) {
        match token {
            Ok((Token::BlockStart, _)) => (tags, tokens) = (tags + 1, 0),
            Ok((Token::VariableStart | Token::TemplateData(_), _)) => tokens = 0,
            Ok(_) => tokens += 1,
            // The parser explains it.
            Err(_) => break,
        }
        if tags > limits::CHANNEL_TEMPLATE_TAGS_MAX {
            return Some(format!("must have at most {} statements", limits::CHANNEL_TEMPLATE_TAGS_MAX));
        }
        if tokens > limits::CHANNEL_TEMPLATE_TOKENS_MAX {
            let max = limits::CHANNEL_TEMPLATE_TOKENS_MAX;
            return Some(format!("must have at most {max} words and signs in each statement and expression"));
        }
    }
    None
}

/// The first part of a statement that is not permitted.
fn statement_problem(statement: &Stmt) -> Option<String> {
    match statement {
        Stmt::Template(template) => template.children.iter().find_map(statement_problem),
        Stmt::EmitRaw(_) => None,
        Stmt::EmitExpr(emit) => expression_problem(&emit.expr),
        Stmt::IfCond(condition) => {
            let bodies = condition.true_body.iter().chain(&condition.false_body);
            expression_problem(&condition.expr).or_else(|| bodies.into_iter().find_map(statement_problem))
        }
        Stmt::ForLoop(repeated) => loop_problem(repeated),
        Stmt::Set(_) | Stmt::SetBlock(_) => Some("{% set %}".to_owned()),
        Stmt::WithBlock(_) => Some("{% with %}".to_owned()),
        Stmt::FilterBlock(_) => Some("{% filter %}".to_owned()),
        _ => Some("a statement".to_owned()),
    }
}

fn loop_problem(repeated: &ForLoop) -> Option<String> {
    if repeated.recursive {
        return Some("a recursive loop".to_owned());
    }
    if !matches!(repeated.target, Expr::Var(_)) {
        return Some("a loop with several variables".to_owned());
    }
    let mut expressions = [Some(&repeated.iter), repeated.filter_expr.as_ref()].into_iter().flatten();
    let mut bodies = repeated.body.iter().chain(&repeated.else_body);
    expressions.find_map(expression_problem).or_else(|| bodies.find_map(statement_problem))
}

/// The first part of an expression that is not permitted.
fn expression_problem(expression: &Expr) -> Option<String> {
    let all = |parts: &[Option<&Expr>]| parts.iter().flatten().find_map(|part| expression_problem(part));
    match expression {
        Expr::Var(_) | Expr::Const(_) => None,
        Expr::GetAttr(get) => expression_problem(&get.expr),
        Expr::GetItem(get) => all(&[Some(&get.expr), Some(&get.subscript_expr)]),
        Expr::Slice(slice) => {
            all(&[Some(&slice.expr), slice.start.as_ref(), slice.stop.as_ref(), slice.step.as_ref()])
        }
        Expr::UnaryOp(unary) => expression_problem(&unary.expr),
        Expr::BinOp(binary) => {
            operator_problem(binary.op).or_else(|| all(&[Some(&binary.left), Some(&binary.right)]))
        }
        Expr::Compare(compare) => all(&[Some(&compare.expr)])
            .or_else(|| compare.ops.iter().find_map(|operation| expression_problem(&operation.expr))),
        Expr::IfExpr(choice) => {
            all(&[Some(&choice.test_expr), Some(&choice.true_expr), choice.false_expr.as_ref()])
        }
        Expr::Filter(filter) if !FILTERS.contains(&filter.name) => {
            Some(format!("the filter {}", filter.name))
        }
        Expr::Filter(filter) => all(&[filter.expr.as_ref()]).or_else(|| arguments_problem(&filter.args)),
        Expr::Test(test) if !TESTS.contains(&test.name) => Some(format!("the test {}", test.name)),
        Expr::Test(test) => all(&[Some(&test.expr)]).or_else(|| arguments_problem(&test.args)),
        Expr::Call(_) => Some("a call of a function".to_owned()),
        Expr::List(_) => Some("a list".to_owned()),
        Expr::Map(_) => Some("a map".to_owned()),
    }
}

fn operator_problem(operator: BinOpKind) -> Option<String> {
    let sign = match operator {
        BinOpKind::Add => "+",
        BinOpKind::Mul => "*",
        BinOpKind::Pow => "**",
        BinOpKind::Concat => "~",
        _ => return None,
    };
    Some(format!("the operator {sign}"))
}

fn arguments_problem(arguments: &[CallArg]) -> Option<String> {
    if arguments.len() > ARGUMENTS_MAX {
        return Some(format!("more than {ARGUMENTS_MAX} arguments"));
    }
    arguments.iter().find_map(|argument| match argument {
        CallArg::Pos(value) => expression_problem(value),
        _ => Some("a named argument".to_owned()),
    })
}
