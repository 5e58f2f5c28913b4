//! Modules that PyTorch does not have: those of text encoders.

use fedelity_nn::{BlockNames, Layer, Node};

use crate::modules::Modules;

const EMBEDDINGS: &str = "

class Embeddings(nn.Module):
    \"\"\"The sum of word, position and token type 0, then normalisation and dropout.\"\"\"

    def __init__(self, vocabulary, positions, types, width, eps, dropout):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(types, width) if types else None
        self.LayerNorm = nn.LayerNorm(width, eps=eps)
        self.p = dropout

    def forward(self, input_ids):
        x = self.word_embeddings(input_ids) + self.position_embeddings.weight[: input_ids.shape[1]]
        if self.token_type_embeddings is not None:
            x = x + self.token_type_embeddings.weight[0]
        return F.dropout(self.LayerNorm(x), self.p, self.training)
";

/// The class of a transformer block with these names.
pub(crate) fn block_class(names: BlockNames) -> &'static str {
    match names {
        BlockNames::Bert => "BertBlock",
        BlockNames::DistilBert => "DistilBertBlock",
    }
}

/// The classes that these layers need.
pub(crate) fn classes(nodes: &[Node]) -> String {
    let mut out = String::new();
    if nodes.iter().any(|node| matches!(node.layer, Layer::Embeddings { .. })) {
        out.push_str(EMBEDDINGS);
    }
    for names in BlockNames::ALL {
        if nodes.iter().any(|node| matches!(node.layer, Layer::Block { names: own, .. } if own == names)) {
            out.push_str(&block(names));
        }
    }
    out
}

fn block(names: BlockNames) -> String {
    let parts = names.parts();
    let mut modules = Modules::default();
    let mut linear = |part: &str, from: &str, to: &str| modules.add(part, format!("nn.Linear({from}, {to})"));
    let [query, key, value, out] =
        [parts.query, parts.key, parts.value, parts.out].map(|part| linear(part, "width", "width"));
    let (up, down) = (linear(parts.up, "width", "hidden"), linear(parts.down, "hidden", "width"));
    let [norm1, norm2] =
        [parts.norm1, parts.norm2].map(|part| modules.add(part, "nn.LayerNorm(width, eps=eps)".to_owned()));
    let mut init = String::new();
    modules.write(&mut init, 2);
    format!(
        "

class {}(nn.Module):
    \"\"\"Attention, then two dense layers with GELU between them; both end with a sum and a normalisation.\"\"\"

    def __init__(self, width, heads, hidden, eps, dropout, attention_dropout):
        super().__init__()
        self.heads, self.p, self.attention_p = heads, dropout, attention_dropout
{init}
    def forward(self, x, padding):
        batch, length, width = x.shape
        size = width // self.heads

        def split(y):
            return y.view(batch, length, self.heads, size).transpose(1, 2)

        query, key, value = split({query}(x)), split({key}(x)), split({value}(x))
        scores = query @ key.transpose(2, 3) / size**0.5 + padding
        shares = F.dropout(F.softmax(scores, dim=-1), self.attention_p, self.training)
        y = {out}((shares @ value).transpose(1, 2).reshape(batch, length, width))
        x = {norm1}(x + F.dropout(y, self.p, self.training))
        y = {down}(F.gelu({up}(x)))
        return {norm2}(x + F.dropout(y, self.p, self.training))
",
        block_class(names)
    )
}
