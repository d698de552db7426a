// The report: what is read from a run folder, what the page holds, and what never gets into it.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include "support/refusal.h"
#include "support/temp_folder.h"
#include "train/report/chart.h"
#include "train/report/page.h"

using namespace annulus;
using namespace annulus::test;
using nlohmann::json;

namespace {

std::string line(int step, double loss, const std::string& more = "") {
  return "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(loss) +
         ",\"grad_norm\":1.5,\"lr\":2e-5,\"tokens\":" + std::to_string(100 * step) +
         ",\"step_seconds\":2,\"mfu\":null,\"device_used_bytes\":0,\"host_peak_bytes\":3000000000" + more +
         "}\n";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// Values of the page's charts, by the script's own way.
json data_of(const std::string& page) {
  const std::string begin = "id=data>";
  const std::size_t from = page.find(begin) + begin.size();
  return json::parse(page.substr(from, page.find("</script>", from) - from));
}

/// No element or rule of the page makes a browser fetch anything.
void check_self_contained(const std::string& page) {
  const std::string markup = std::regex_replace(page, std::regex("<pre>[^<]*</pre>"), "");
  for (const char* part : {"http:", "https:", "src=", "href=", "url(", "@import", "//www"})
    BOOST_TEST(!contains(markup, part), part);
  BOOST_TEST(contains(page, "default-src 'none'"));
  BOOST_TEST(count(page, "<script") == 2u);
  BOOST_TEST(count(page, "</script") == 2u);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(train)

BOOST_AUTO_TEST_CASE(a_history_takes_each_step_from_its_newest_life) {
  const TempFolder folder;
  std::string text = line(1, 5) + line(2, 4) + line(3, 3.5) + "no json\n[1]\n{\"step\":-4}\n{\"loss\":1}\n" +
                     line(2, 4.25, ",\"eval_loss\":4.5,\"eval_entropy\":2") + line(3, 3.75) +
                     line(4, 3, ",\"aux_loss\":1.25") + "{\"step\":5,\"lo";
  folder.write("metrics.jsonl", text);
  folder.write("status.json",
               "{\"reason\":\"running\",\"first_step\":1,\"total_steps\":9,\"best_step\":2,\"step\":4}");
  const History h = read_history(folder.path(""), 100);
  BOOST_TEST((h.step == std::vector<std::int64_t>{1, 2, 3, 4}));
  BOOST_TEST((h.curves.at("loss").mean == std::vector<double>{5, 4.25, 3.75, 3}));
  BOOST_TEST(std::isnan(h.curves.at("aux_loss").mean[2]));
  BOOST_TEST(h.curves.at("aux_loss").mean[3] == 1.25);
  BOOST_TEST(h.curves.count("mfu") == 0u);
  BOOST_TEST(h.unreadable == 4);
  BOOST_REQUIRE(h.evals.size() == 1u);
  BOOST_TEST(h.evals[0].values.at("entropy") == 2);
  BOOST_TEST(h.seconds == 8);
  BOOST_TEST(h.total == 9);
  BOOST_TEST(!h.alive);
  folder.write("lock", "{\"heartbeat\":" + std::to_string(std::time(nullptr) - 30) + "}");
  BOOST_TEST(read_history(folder.path(""), 100).alive);
  check_refused(Exit::input, {"metrics.jsonl", "run.dir"}, [&] { read_history(folder.path("absent"), 100); });
}

BOOST_AUTO_TEST_CASE(many_steps_are_thinned_and_no_spike_is_lost) {
  const TempFolder folder;
  std::string text;
  constexpr int kSteps = 10007;
  for (int s = 1; s <= kSteps; ++s) text += line(s, s == 5003 ? 77 : 2);
  folder.write("metrics.jsonl", text);
  const History h = read_history(folder.path(""), 13);
  BOOST_REQUIRE(h.step.size() == 13u);
  BOOST_TEST(h.first.front() == 1);
  BOOST_TEST(h.step.back() == kSteps);
  for (std::size_t p = 1; p < 13; ++p) BOOST_TEST(h.first[p] == h.step[p - 1] + 1);
  const Curve& loss = h.curves.at("loss");
  for (std::size_t p = 0; p < 13; ++p) {
    const bool spike = h.first[p] <= 5003 && 5003 <= h.step[p];
    BOOST_TEST(loss.high[p] == (spike ? 77 : 2));
    BOOST_TEST(loss.low[p] == 2);
    const double steps = static_cast<double>(h.step[p] - h.first[p] + 1);
    BOOST_TEST(std::abs(loss.mean[p] - (2 + (spike ? 75 / steps : 0))) < 1e-12);
  }
}

BOOST_AUTO_TEST_CASE(a_page_holds_the_numbers_and_fetches_nothing) {
  const TempFolder folder;
  std::string text;
  const std::string positions =
      ",\"eval_loss\":3.5,\"eval_perplexity\":33.1,\"eval_positions\":[{\"from\":0,\"to\":9,\"targets\":4,"
      "\"loss\":3.25},{\"from\":9,\"to\":18,\"targets\":3,\"loss\":3.8125}]";
  for (int s = 1; s <= 7; ++s) text += line(s, 5 - 0.25 * s, s == 4 ? positions : "");
  folder.write("metrics.jsonl", text);
  folder.write("status.json", "{\"reason\":\"done\",\"first_step\":3,\"total_steps\":7,\"best_step\":4}");
  folder.write(
      "facts.txt",
      "a host with <b>bold</b> & \"quotes\" \xff\x01 https://example.org/\n</pre><script>x()</script>");
  folder.write("config.ini", "[data]\ntrain = <books>.jsonl\n");
  const History h = read_history(folder.path(""), report_points(1));
  const std::string page = report_page({h}, "today");
  check_self_contained(page);
  for (const char* part :
       {"prefers-color-scheme:dark", "width=device-width", ">done<", "3.2500", "3.5000", "step 4, in best.h5",
        "&lt;b&gt;bold&lt;/b&gt; &amp; &quot;quotes&quot; \xEF\xBF\xBD\xEF\xBF\xBD", "&lt;books&gt;.jsonl",
        "&lt;/pre&gt;&lt;script&gt;", "3.0 GB", "the newest life began after step 3", "Loss", "Gradient norm",
        "Learning rate", "Time of a step", "Memory of a rank", "by position in the document"})
    BOOST_TEST(contains(page, part), part);
  BOOST_TEST(!contains(page, "Model flops"));  // null on a CPU
  const json data = data_of(page);
  BOOST_REQUIRE(data.size() == count(page, "<figure"));
  const json& loss = data[0]["s"];
  BOOST_TEST(loss[0]["n"] == "training");
  BOOST_TEST(loss[0]["y"] == json({4.75, 4.5, 4.25, 4.0, 3.75, 3.5, 3.25}));
  BOOST_TEST(loss[0]["x"] == json({1, 1, 1, 1, 1, 1, 1}));  // differences
  BOOST_TEST(loss[1]["y"] == json({3.5}));
  BOOST_TEST(loss[1]["x"] == json({4}));
  BOOST_TEST(data[1]["t"] == "position");
  BOOST_TEST(data[1]["s"][0]["y"] == json({3.25, 3.8125}));
}

BOOST_AUTO_TEST_CASE(a_page_of_several_runs_stays_small) {
  const TempFolder folder;
  std::string text;
  constexpr int kSteps = 100000;
  for (int s = 1; s <= kSteps; ++s)
    text += line(s, 2 + 1.0 / s + 1e-6 * (s * 7919 % 99991),
                 s % 20 == 0 ? ",\"eval_loss\":2.5,\"eval_entropy\":1.5" : "");
  std::filesystem::create_directories(folder.path("a"));
  folder.write("a/metrics.jsonl", text);
  for (const std::size_t runs : {std::size_t{1}, kReportRuns}) {
    const History h = read_history(folder.path("a"), report_points(runs));
    const std::string page = report_page(std::vector<History>(runs, h), "today");
    check_self_contained(page);
    BOOST_TEST(page.size() < 2000000u, runs << " runs: " << page.size() << " bytes");
    BOOST_TEST(count(page, "<h2>") == runs);
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_has_done_no_step_has_a_page) {
  const TempFolder folder;
  folder.write("metrics.jsonl", "");
  folder.write("status.json", "{\"reason\":\"error: <i>no</i> space\"}");
  const std::string page = report_page({read_history(folder.path(""), 10)}, "today");
  check_self_contained(page);
  BOOST_TEST(contains(page, "No step is done yet"));
  BOOST_TEST(contains(page, "error: &lt;i&gt;no&lt;/i&gt; space"));
  BOOST_TEST(data_of(page).empty());
}

BOOST_AUTO_TEST_CASE(charts_survive_gaps_one_point_and_values_far_out) {
  const double none = std::nan("");
  Chart chart{.title = "A <chart>", .may_log = true};
  chart.series.push_back(
      {.label = "</script>", .x = {1, 2, 3, 4}, .y = {1, none, 3, 900}, .low = {}, .high = {}});
  std::string html = chart_html(chart, 0);
  BOOST_TEST(contains(html, "A &lt;chart&gt;"));
  BOOST_TEST(contains(html, "logarithmic"));
  BOOST_TEST(!contains(html, "nan"));
  BOOST_TEST(!contains(html, "inf"));
  const json j = json::parse(chart_json(chart));
  BOOST_TEST(j["s"][0]["n"] == "</script>");
  BOOST_TEST(!contains(chart_json(chart), "<"));
  BOOST_TEST(j["s"][0]["y"][1].is_null());
  // One usual step of many is far longer: the axis keeps to the others and says so.
  Chart slow{.title = "Time", .unit = " s", .from_zero = true};
  Series s;
  for (int i = 1; i <= 99; ++i) {
    s.x.push_back(i);
    s.y.push_back(i == 1 ? 500 : 2);
  }
  slow.series = {s};
  html = chart_html(slow, 0);
  BOOST_TEST(contains(html, "greatest 500 s, above the axis"));
  slow.series = {{.x = {7}, .y = {0}, .low = {}, .high = {}}};
  html = chart_html(slow, 0);
  BOOST_TEST(contains(html, "h0"));
  BOOST_TEST(!contains(html, "nan"));
  BOOST_TEST(short_number(1048576) == "1.049M");
  BOOST_TEST(short_number(2e-5) == "2e-05");
  BOOST_TEST(short_number(12345) == "12.35k");
  BOOST_TEST(short_number(none) == "\xE2\x80\x93");
}

BOOST_AUTO_TEST_SUITE_END()
